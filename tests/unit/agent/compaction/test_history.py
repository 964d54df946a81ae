"""Where a conversation may be cut, and what a Messages API would refuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.compaction.history import (
    calls_in,
    cut,
    faults,
    places,
    results_in,
    tokens_of,
)
from tests.unit.agent.compaction.histories import histories, rounds

ASK = {"role": "user", "content": "hello"}
TEXT = {"type": "text", "text": "x"}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
RESULT = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "a", "content": "done"}],
}


@given(histories())
def test_a_cut_parts_no_call_from_its_result(messages: list[dict[str, Any]]) -> None:
    pairs = [
        (i, j)
        for i, asking in enumerate(messages)
        for name in calls_in(asking)
        for j, answering in enumerate(messages)
        if name in results_in(answering)
    ]
    naive = [at for at in range(len(messages)) if all((i < at) == (j < at) for i, j in pairs)]
    assert places(messages) == naive


@settings(max_examples=40)
@given(histories(), st.integers(0, 400))
def test_what_stays_is_as_much_as_fits(messages: list[dict[str, Any]], keep: int) -> None:
    found = places(messages)
    at = cut(messages, keep)
    fitting = [place for place in found if tokens_of(messages[place:]) <= keep]
    assert at == (min(fitting) if fitting else found[-1])


@given(histories())
def test_drawn_conversations_are_valid(messages: list[dict[str, Any]]) -> None:
    assert faults(messages) == []


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([], "no messages"),
        ([{"role": "assistant", "content": "hi"}], "not the user's"),
        ([ASK, CALL], "no result"),
        ([ASK, CALL, ASK], "asked was"),
        ([ASK, RESULT], "asked was"),
        ([ASK, CALL, RESULT, CALL, RESULT], "repeats"),
        ([{"role": "user", "content": ""}, ASK], "empty"),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "empty text"),
        (
            [
                ASK,
                CALL,
                {"role": "user", "content": [{"type": "text", "text": "x"}, *RESULT["content"]]},
            ],
            "before a tool result",
        ),
    ],
    ids=["none", "assistant", "open", "unanswered", "orphan", "twice", "empty", "text", "order"],
)
def test_faults_are_named(messages: list[dict[str, Any]], fault: str) -> None:
    assert any(fault in found for found in faults(messages))


def test_a_result_split_over_two_messages_holds_its_call() -> None:
    calls = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in "ab"]
    results = [{"type": "tool_result", "tool_use_id": name, "content": "x"} for name in "ab"]
    messages = [
        ASK,
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results[:1]},
        {"role": "user", "content": results[1:]},
        ASK,
    ]
    assert places(messages) == [0, 1, 4]


def test_sizes_grow_with_text() -> None:
    # 3.6 bytes a token; each of the 10 results has 600 characters more.
    more = tokens_of(rounds(10, 1_200)) - tokens_of(rounds(10, 600))
    assert more == pytest.approx(10 * 600 / 3.6, rel=0.2)
