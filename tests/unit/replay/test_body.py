"""Bodies: every content block has the wanted size, kind, level and marker, and none of its text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.jobs.replaying.blocks import Encoding
from cacheaudit.jobs.replaying.body import Body, Writer, scaled
from cacheaudit.model.prompt import Prompt
from tests.unit.replay.builders import (
    MARK,
    assistant,
    naive_counts,
    prompt_of,
    text,
    tool,
    user,
)

CALL = {"type": "tool_use", "id": "toolu_secret", "name": "secret", "input": {"secret": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_secret", "content": "secret"}
THOUGHT = {"type": "thinking", "thinking": "secret", "signature": "secret"}
PAPER = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "secret"},
}
BODY: dict[str, Any] = {
    "tools": [tool("secret", description="secret"), tool("secret-2", cache_control=MARK)],
    "system": [text("secret"), text("secret too", cache_control={**MARK, "ttl": "5m"})],
    "messages": [
        user(text("secret"), PAPER),
        assistant(THOUGHT, text("secret"), CALL),
        user(RESULT, text("secret", cache_control=MARK)),
    ],
}


def written(body: dict[str, Any], sizes: list[int], scale: int = 1, **settings: Any) -> Body:
    prompt = prompt_of(body)
    return Writer(scale, **settings).write(prompt, prompt.blocks, sizes, "m")


def test_sizes_kinds_levels_and_markers_are_kept_and_no_text() -> None:
    sizes = [60, 70, 100, 200, 300, 40, 50, 80, 90, 110, 120]
    made = written(BODY, sizes)
    assert naive_counts(made.json) == sizes == list(made.planned)
    assert "secret" not in json.dumps(made.json)
    assert [sorted(t) for t in made.json["tools"]][1] == [
        "cache_control", "description", "input_schema", "name",
    ]  # fmt: skip
    assert [block.get("cache_control") for block in made.json["system"]] == [
        None,
        {"type": "ephemeral", "ttl": "5m"},
    ]
    roles = [(m["role"], [b["type"] for b in m["content"]]) for m in made.json["messages"]]
    assert roles == [
        ("user", ["text", "document"]),
        ("assistant", ["thinking", "text", "tool_use"]),
        ("user", ["tool_result", "text"]),
    ]
    assert made.json["messages"][2]["content"][1]["cache_control"] == MARK
    call, result = made.json["messages"][1]["content"][2], made.json["messages"][2]["content"][0]
    assert call["id"] == result["tool_use_id"]
    assert made.turns == (1, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0)


def test_an_answer_of_one_token_is_asked_for() -> None:
    made = written({"messages": [user(text("a"))]}, [5])
    assert (made.json["max_tokens"], made.json["temperature"], made.json["model"]) == (1, 0, "m")


@given(
    st.lists(st.integers(1, 400), min_size=11, max_size=11),
    st.sampled_from([1, 2, 7, 10, 100]),
)
def test_nothing_is_sent_smaller_than_planned(sizes: list[int], scale: int) -> None:
    made = written(BODY, sizes, scale)
    counts = naive_counts(made.json)
    assert list(made.planned) == [scaled(size, scale) for size in sizes]
    for place, (count, planned) in enumerate(zip(counts, made.planned, strict=True)):
        assert count >= planned
        # Texts are exact from two tokens on; JSON needs room of its own.
        least = 50 if place in (0, 1, 8, 9) else 2
        assert count == planned or planned < least


def test_equal_content_behind_an_equal_prefix_is_equal_in_every_call() -> None:
    writer = Writer()
    first = prompt_of({"messages": [user(text("a"), text("b"))]})
    longer = prompt_of({"messages": [user(text("a"), text("b")), assistant(text("c"))]})
    other = prompt_of({"messages": [user(text("x"), text("b"))]})
    one = writer.write(first, first.blocks, [30, 40], "m").json["messages"]
    two = writer.write(longer, longer.blocks, [30, 40, 50], "m").json["messages"]
    three = writer.write(other, other.blocks, [30, 40], "m").json["messages"]
    assert two[:1] == one
    assert three[0]["content"][0]["text"][0] != one[0]["content"][0]["text"][0]
    assert three[0]["content"][1] == one[0]["content"][1]


def test_a_marker_that_moves_changes_no_content() -> None:
    writer = Writer()
    here = prompt_of({"messages": [user(text("a", cache_control=MARK), text("b"))]})
    there = prompt_of({"messages": [user(text("a"), text("b", cache_control=MARK))]})
    one = writer.write(here, here.blocks, [30, 40], "m").json["messages"][0]["content"]
    two = writer.write(there, there.blocks, [30, 40], "m").json["messages"][0]["content"]
    assert [b["text"] for b in one] == [b["text"] for b in two]


def test_the_request_as_a_whole_can_bear_a_marker() -> None:
    made = written({"cache_control": {**MARK, "ttl": "1h"}, "messages": [user(text("a"))]}, [5])
    assert made.json["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_servers_without_markers_get_text_that_differs_from_its_first_token() -> None:
    made = written(BODY, [60] * 11, marked=False)
    assert "tools" not in made.json
    assert len(made.json["system"]) == 4
    assert "cache_control" not in json.dumps(made.json)
    assert naive_counts(made.json) == [60] * 11


def test_a_call_without_its_result_is_sent_as_text() -> None:
    body = {"messages": [user(text("a")), assistant(CALL), user(text("b")), assistant(CALL)]}
    kinds = [
        block["type"]
        for message in written(body, [9, 60, 9, 60]).json["messages"]
        for block in message["content"]
    ]
    # The last turn may still wait for its results.
    assert kinds == ["text", "text", "text", "tool_use"]


def test_a_result_without_its_call_is_sent_as_text() -> None:
    made = written({"messages": [user(RESULT, text("a"))]}, [9, 9])
    assert [b["type"] for b in made.json["messages"][0]["content"]] == ["text", "text"]


def test_a_foreign_server_gets_no_thinking_without_a_signature() -> None:
    made = written(BODY, [60] * 11, encoding=Encoding(4.0, 0, is_ours=False))
    kinds = [b["type"] for m in made.json["messages"] for b in m["content"]]
    assert "thinking" not in kinds
    assert len(made.json["system"][0]["text"]) == 240


@pytest.mark.parametrize(
    ("tokens", "scale", "wanted"),
    [(500, 1, 500), (500, 10, 50), (7, 10, 1), (15, 10, 2), (14, 10, 1), (1, 1_000, 1)],
)
def test_sizes_are_divided_to_the_nearest(tokens: int, scale: int, wanted: int) -> None:
    assert scaled(tokens, scale) == wanted


def test_a_prompt_of_nothing_but_instructions_gets_a_message() -> None:
    prompt: Prompt = prompt_of({"system": "a", "messages": []})
    assert Writer().write(prompt, prompt.blocks, [20], "m").json["messages"]
