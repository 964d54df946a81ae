"""Prefix identity against a naive oracle; what is no change of a prompt."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.model.change import common, common_prefix, first_change, is_extension
from cacheaudit.model.prompt import Prompt, chain
from cacheaudit.providers.registry import expand

WORD = st.sampled_from(["a", "b", "é"])
TEXT = WORD.map(lambda word: {"type": "text", "text": word})
USE = WORD.map(lambda word: {"type": "tool_use", "id": word, "name": "f", "input": {word: 1}})
MESSAGE = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant"]),
    st.lists(TEXT | USE, min_size=1, max_size=3),
)
TOOL = WORD.map(lambda word: {"name": word, "input_schema": {}})
BODY = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["claude-1", "claude-2"]),
        "tools": st.lists(TOOL, max_size=2),
        "system": st.lists(TEXT, max_size=2),
        "messages": st.lists(MESSAGE, max_size=4),
    },
    optional={
        "speed": st.sampled_from(["fast", "standard"]),
        "tool_choice": st.sampled_from([{"type": "any"}, {"type": "auto"}]),
    },
)
ORDER = ("tools", "system", "messages")


def naive_prefix(a: Prompt, b: Prompt) -> int:
    """Compare block by block; a block counts while all levels up to its own have equal settings."""
    count = 0
    for mine, theirs in zip(a.blocks, b.blocks, strict=False):
        if mine.level != theirs.level or mine.canonical != theirs.canonical:
            break
        reached = ORDER[: ORDER.index(mine.level) + 1]
        settings = [
            sorted((p.name, p.value) for p in prompt.parameters if p.level in reached)
            for prompt in (a, b)
        ]
        if settings[0] != settings[1]:
            break
        count += 1
    return count


@given(BODY, BODY)
def test_common_prefix_is_that_of_the_oracle(one: dict[str, Any], other: dict[str, Any]) -> None:
    a, b = expand(one), expand(other)
    assert common_prefix(a, b) == common_prefix(b, a) == naive_prefix(a, b)


@given(BODY, st.lists(MESSAGE, max_size=3))
def test_appending_extends(body: dict[str, Any], more: list[dict[str, Any]]) -> None:
    a = expand(body)
    b = expand({**body, "messages": [*body["messages"], *more]})
    assert common_prefix(a, b) == naive_prefix(a, b) == len(a.blocks)
    assert is_extension(a, b)
    assert first_change(a, b) is None
    assert b.prefix_digests[: len(a.blocks)] == a.prefix_digests


@given(BODY, BODY)
def test_no_change_is_found_exactly_when_nothing_is_lost(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    a, b = expand(one), expand(other)
    change = first_change(a, b)
    have_messages = a.at_level("messages") and b.at_level("messages")
    assert (change is None) == is_extension(a, b) or not have_messages
    if change is not None:
        assert change.blocks_before <= len(b.blocks)
        assert change.prompt_byte_offset == sum(
            len(block.canonical) for block in b.blocks[: change.blocks_before]
        )
        if change.kind != "parameter":
            assert change.blocks_before == naive_prefix(a, b)


@given(BODY, BODY)
def test_a_chain_with_a_previous_prompt_is_the_same_chain(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    a, b = expand(one), expand(other)
    reused = expand(copy.deepcopy(other), previous=a)
    assert reused.prefix_digests == b.prefix_digests
    assert [block.digest for block in reused.blocks] == [block.digest for block in b.blocks]
    assert chain(b.level_order, b.parameters, b.blocks, a) == b.prefix_digests


def marked(body: dict[str, Any], places: list[int], ttl: str | None) -> dict[str, Any]:
    """Put markers on the blocks with these numbers."""
    body = copy.deepcopy(body)
    blocks = [*body["tools"], *body["system"]]
    blocks += [block for message in body["messages"] for block in message["content"]]
    for place in places:
        if place < len(blocks):
            blocks[place]["cache_control"] = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
    return body


PLACES = st.lists(st.integers(0, 10), max_size=4)


@given(BODY, PLACES, PLACES, st.sampled_from([None, "5m", "1h"]))
def test_markers_may_come_go_and_move(
    body: dict[str, Any], before: list[int], after: list[int], ttl: str | None
) -> None:
    a, b = expand(marked(body, before, "1h")), expand(marked(body, after, ttl))
    assert a.prefix_digests == b.prefix_digests
    assert first_change(a, b) is None
    found = {index for index, block in enumerate(b.blocks) if block.marker is not None}
    assert found == {place for place in after if place < len(b.blocks)}
    assert all(block.marker.ttl == ttl for block in b.blocks if block.marker is not None)
    automatic = expand({**body, "cache_control": {"type": "ephemeral"}})
    assert automatic.prefix_digests == a.prefix_digests
    assert automatic.automatic_marker is not None


@given(BODY)
def test_text_and_a_list_of_one_text_are_the_same(body: dict[str, Any]) -> None:
    other = copy.deepcopy(body)
    if len(other["system"]) == 1:
        other["system"] = other["system"][0]["text"]
    for message in other["messages"]:
        if len(message["content"]) == 1 and message["content"][0]["type"] == "text":
            message["content"] = message["content"][0]["text"]
    a, b = expand(body), expand(other)
    assert a.prefix_digests == b.prefix_digests
    assert [block.path for block in a.blocks] == [block.path for block in b.blocks]
    assert first_change(a, b) is None


@given(BODY, BODY)
def test_common_counts_each_level_for_itself(one: dict[str, Any], other: dict[str, Any]) -> None:
    a, b = expand(one), expand(other)

    def leading(mine: list[Any], theirs: list[Any]) -> int:
        count = 0
        while count < min(len(mine), len(theirs)) and mine[count] == theirs[count]:
            count += 1
        return count

    found = common(a, b)
    for field in ("tools", "system", "messages"):
        assert getattr(found, field) == leading(one[field], other[field]), field
    assert found.blocks == naive_prefix(a, b)


def test_tool_results_are_the_same_as_text_or_list() -> None:
    def body(content: Any, **more: Any) -> dict[str, Any]:
        result = {"type": "tool_result", "tool_use_id": "t", "content": content, **more}
        return {"model": "claude", "messages": [{"role": "user", "content": [result]}]}

    plain = expand(body("ok"))
    assert plain.prefix_digests == expand(body([{"type": "text", "text": "ok"}])).prefix_digests
    assert plain.prefix_digests == expand(body("ok", is_error=False)).prefix_digests
    assert plain.prefix_digests != expand(body("ok", is_error=True)).prefix_digests
    inner = [{"type": "text", "text": "ok", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    lifted = expand(body(inner))
    assert lifted.prefix_digests == plain.prefix_digests
    assert lifted.blocks[0].marker is not None
    assert lifted.blocks[0].marker.ttl == "1h"


def test_a_messages_setting_leaves_tools_and_system_alone() -> None:
    body = {
        "model": "claude",
        "system": "s",
        "tools": [{"name": "f"}],
        "messages": [{"role": "user", "content": "x"}],
    }
    a = expand(body)
    for setting in (
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"thinking": {"type": "adaptive"}},
        {"output_config": {"effort": "low"}},
    ):
        assert common_prefix(a, expand({**body, **setting})) == 2, setting
    assert common_prefix(a, expand({**body, "speed": "fast"})) == 1
    assert common_prefix(a, expand({**body, "model": "claude-2"})) == 0


def test_digests_are_the_same_in_every_process() -> None:
    code = (
        "from cacheaudit.providers.registry import expand;"
        "print(expand({'system': 's', 'tools': [{'name': 'f'}], 'messages':"
        "[{'role': 'user', 'content': 'x'}]}).prefix_digests[-1].hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p)},
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(seen) == 1
