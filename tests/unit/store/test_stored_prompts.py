"""Prompts that came back without their text still say where they differ."""

from __future__ import annotations

import msgspec
import pytest

from cacheaudit.model.call import Call
from cacheaudit.model.change import first_change
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import estimate
from cacheaudit.providers.anthropic import AnthropicProvider
from cacheaudit.providers.openai import PROVIDER as OPENAI
from cacheaudit.store import open_store

TOOL = {"name": "read", "description": "reads", "input_schema": {"type": "object", "x": 1}}
BODY = {
    "model": "m",
    "tools": [TOOL],
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": f"question {n} " * 20} for n in range(4)],
}
CHANGES = {
    "tool": {**BODY, "tools": [{**TOOL, "description": "reads a file"}]},
    "tool key order": {
        **BODY,
        "tools": [{**TOOL, "input_schema": {"x": 1, "type": "object"}}],
    },
    "system": {**BODY, "system": "It is 12:05."},
    "message": {
        **BODY,
        "messages": [*BODY["messages"][:2], {"role": "user", "content": "x"}, BODY["messages"][3]],
    },
    "removed": {**BODY, "messages": BODY["messages"][1:]},
    "parameter": {**BODY, "tool_choice": {"type": "any"}},
    "appended": {**BODY, "messages": [*BODY["messages"], {"role": "user", "content": "more"}]},
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_first_change_is_in_the_same_place(url: str, name: str) -> None:
    provider = AnthropicProvider()
    before, after = provider.expand(BODY), provider.expand(CHANGES[name])
    with open_store(url) as store:
        store.write(
            [Call(id="a", prompt=before), Call(id="b", prompt=after)],
            source="t",
        )
        (session,) = store.sessions()
    a, b = (call.prompt for call in session.calls)
    assert isinstance(a, Prompt)
    assert isinstance(b, Prompt)
    assert (a.size_bytes, b.size_bytes) == (before.size_bytes, after.size_bytes)
    assert list(map(estimate, b.blocks)) == list(map(estimate, after.blocks))
    expected, found = first_change(before, after), first_change(a, b)
    if expected is None:
        assert found is None
        return
    assert found is not None
    whole = msgspec.structs.asdict(expected)
    if expected.kind in ("edited", "key_order_only"):  # what text alone can tell
        whole |= {"byte_offset": None, "kind": "edited", "path": whole["path"].split(".input")[0]}
        whole["path"] = b.blocks[expected.blocks_before].path
    assert msgspec.structs.asdict(found) == whole


def test_short_settings_are_kept_unless_they_hold_text(url: str) -> None:
    body = {
        "model": "m",
        "prompt_cache_key": "the plan of Ms X",
        "reasoning": {"effort": "low"},
        "input": "x",
    }
    with open_store(url) as store:
        store.write([Call(id="a", prompt=OPENAI.expand(body))], source="t")
        ((call,),) = [session.calls for session in store.sessions()]
    assert call.prompt is not None
    values = {p.name: p.value for p in call.prompt.parameters}
    assert values["reasoning.effort"] == b'"low"'
    assert values["prompt_cache_key"].startswith(b'"blake2b:')
