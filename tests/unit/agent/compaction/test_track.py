"""What a compactor remembers: copies of its own, sizes, growth, turns."""

from __future__ import annotations

import copy
from typing import Any

import anthropic.types as sdk
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.compaction.settings import Compaction
from cacheaudit.agent.compaction.track import Track, usage_of
from cacheaudit.errors import UsageError
from cacheaudit.model.usage import Usage
from tests.unit.agent.compaction.histories import body, histories, rounds

START = 1_795_996_800.0


def track(**more: Any) -> Track:
    return Track(Compaction(**more), places_markers=False)


@settings(max_examples=40)
@given(histories(), st.data())
def test_copies_are_what_was_given_at_that_moment(
    messages: list[dict[str, Any]], data: st.DataObject
) -> None:
    mine = track()
    first = mine.copy(body(messages))
    then = copy.deepcopy(messages)
    index = data.draw(st.integers(0, len(messages) - 1))
    messages[index]["content"] = "changed in place"
    second = mine.copy(body(messages))
    assert first["messages"] == then
    assert second["messages"] == messages
    kept = [a is b for a, b in zip(first["messages"], second["messages"], strict=True)]
    assert kept.count(False) == 1


def test_objects_of_the_sdk_are_taken_as_their_json() -> None:
    block = sdk.ToolUseBlock(id="a", name="run", input={"n": 1}, type="tool_use")
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": [block]}]
    for _ in range(2):
        (found,) = track().copy(body(messages))["messages"][1]["content"]
        assert (found["id"], found["input"], type(found)) == ("a", {"n": 1}, dict)
    with pytest.raises(UsageError):
        track().copy({"messages": "hello"})


def test_sizes_are_those_reported_and_the_rest_at_the_same_ratio() -> None:
    mine = track()
    request = mine.copy(body(rounds(5, 600)))
    mine.took(request, Usage(total_input=5_000, cache_read=4_000, write_5m=900), START)
    assert mine.size_of(request) == 5_000
    assert mine.last is not None
    assert (mine.last.stored, mine.last.lifetime) == (4_900, "5m")
    longer = mine.copy(body(rounds(10, 600)))
    grown = mine.size_of(longer)
    # Five more rounds of the same size; tools and system do not grow.
    assert 8_500 < grown < 10_000
    assert mine.is_warm(START + 299)
    assert not mine.is_warm(START + 300)
    mine.took(longer, Usage(cache_read=100, write_1h=900), START)
    assert mine.is_warm(START + 3_599)


def test_usage_that_is_not_told_is_unknown() -> None:
    assert usage_of({}) == Usage()
    assert usage_of({"usage": {"input_tokens": 5, "output_tokens": 1}}).output == 1
