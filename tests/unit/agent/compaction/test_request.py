"""The summary request by prefix extends the last request; the others are what they say."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.compaction.history import faults
from cacheaudit.agent.compaction.request import (
    again,
    instruction,
    obstacle,
    prefix_request,
    server_request,
    standalone_request,
)
from cacheaudit.agent.compaction.settings import Heading, Structure
from cacheaudit.model.prompt import Prompt
from cacheaudit.providers.registry import expand
from tests.unit.agent.compaction.histories import body, histories, rounds

MARK = {"type": "ephemeral"}
STRUCTURE = Structure()


def seen(request: dict[str, Any]) -> Prompt:
    return expand(request, provider="anthropic")


def markers(request: dict[str, Any]) -> int:
    return len(seen(request).marked) + (request.get("cache_control") is not None)


def marked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation with a marker on its last content block."""
    last = messages[-1]
    content = last["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    content = [*content[:-1], {**content[-1], "cache_control": MARK}]
    return [*messages[:-1], {**last, "content": content}]


@settings(max_examples=40)
@given(
    histories(), st.integers(0, 30), st.sampled_from(["explicit", "automatic", "planned", "none"])
)
def test_it_is_a_pure_extension_of_the_last_request(
    messages: list[dict[str, Any]], cut: int, way: str
) -> None:
    turns = [n + 1 for n, m in enumerate(messages) if m["role"] == "user"]
    end = turns[cut % len(turns)]
    said = messages[:end]
    more: dict[str, Any] = {"cache_control": MARK} if way == "automatic" else {}
    last = body(marked(said) if way == "explicit" else said, tool_choice={"type": "any"}, **more)
    now = body(marked(messages) if way == "explicit" else messages, **more)
    if way == "planned":
        for request in (last, now):
            request["system"] = request["system"][0]["text"]
    before = copy.deepcopy((last, now))
    asked = prefix_request(now, STRUCTURE, 900, last=last, recent=2, planned=way == "planned")
    assert (last, now) == before
    mine, theirs = seen(asked), seen(last)
    count = len(theirs.prefix_digests)
    assert mine.prefix_digests[:count] == theirs.prefix_digests
    assert mine.parameters == theirs.parameters
    assert len(mine.blocks) == count + len(seen(now).blocks) - count + 1
    assert asked["max_tokens"] == 900
    assert faults(asked["messages"]) == []
    # It reads what the last request wrote and writes nothing of its own.
    assert markers(asked) <= 4
    assert asked.get("cache_control") is None
    assert max(mine.marked) == (count - 1 if way != "none" else max(theirs.marked))


@settings(max_examples=40)
@given(histories())
def test_what_has_expired_is_not_written_for_one_request(messages: list[dict[str, Any]]) -> None:
    request = body(marked(messages), cache_control=MARK)
    asked = prefix_request(request, STRUCTURE, 900, last=request, warm=False)
    levels = {seen(asked).blocks[index].level for index in seen(asked).marked}
    assert levels == {"system"}
    del request["system"]
    asked = prefix_request(request, STRUCTURE, 900, last=request, warm=False)
    assert {seen(asked).blocks[index].level for index in seen(asked).marked} == {"tools"}
    assert seen(asked).prefix_digests[:-1] == seen(request).prefix_digests


def test_settings_are_those_of_the_last_request_but_for_what_only_shapes_the_answer() -> None:
    last = body(
        rounds(1, 60),
        stream=True,
        stop_sequences=["x"],
        diagnostics={"previous_message_id": None},
        thinking={"type": "enabled", "budget_tokens": 2_000},
        temperature=1,
    )
    asked = prefix_request(last, STRUCTURE, 900, last=last)
    assert asked["max_tokens"] == 2_900
    assert asked["thinking"] == last["thinking"]
    assert asked["temperature"] == 1
    assert not {"stream", "stop_sequences", "diagnostics"} & asked.keys()


def test_a_history_that_was_rewritten_since_is_sent_as_it_is_now() -> None:
    last, now = body(rounds(3, 60)), body(rounds(3, 60, first="another task"))
    asked = prefix_request(now, STRUCTURE, 900, last=last)
    assert seen(asked).prefix_digests[:-1] == seen(now).prefix_digests


def test_after_a_tool_call_it_asks_again_behind_the_same_prefix() -> None:
    request = prefix_request(body(rounds(1, 60)), STRUCTURE, 900)
    call = {"type": "tool_use", "id": "z", "name": "run", "input": {}}
    second = again(request, [{"type": "text", "text": "let me look"}, call])
    first_seen, second_seen = seen(request), seen(second)
    count = len(first_seen.blocks)
    assert second_seen.prefix_digests[:count] == first_seen.prefix_digests
    assert faults(second["messages"]) == []


def test_the_structure_is_the_users() -> None:
    own = Structure(headings=(Heading("Befund", "was gefunden wurde"),), also="Auf Deutsch.")
    text = instruction(own, 3)
    assert "## Befund\n(was gefunden wurde)" in text
    assert text.endswith("Auf Deutsch.")
    assert "last 3 messages" in text
    assert "## Goal" not in text
    assert all(f"## {heading.title}" in instruction(STRUCTURE) for heading in STRUCTURE.headings)


def test_server_and_standalone() -> None:
    request = body(rounds(2, 60), betas=["x"], stream=True)
    asked = server_request(request, STRUCTURE, request["messages"][:3])
    assert asked["compaction"]["type"] == "summarize"
    assert asked["betas"] == ["x", "compact-2026-09-04"]
    assert asked["tools"] == request["tools"]
    assert len(asked["messages"]) == 3
    alone = standalone_request(request, STRUCTURE, 900, request["messages"], "claude-haiku-4-5")
    assert alone["model"] == "claude-haiku-4-5"
    assert not {"tools", "betas", "cache_control", "stream"} & alone.keys()
    text = alone["messages"][0]["content"][0]["text"]
    for piece in ("[User]: fix the parser", '[Tool call run]: {"n":0}', "[Tool result]: row 1"):
        assert piece in text
    assert seen(alone).marked == ()


@pytest.mark.parametrize("name", ["thread", "container", "compaction"])
def test_what_cannot_be_sent_twice_is_said(name: str) -> None:
    found = obstacle(body(rounds(1, 60), **{name: {"id": "x"}}))
    assert found is not None
    assert found.reason == name
    assert obstacle({"input": "hi", "messages": []}) is not None
    assert obstacle(body(rounds(1, 60))) is None
