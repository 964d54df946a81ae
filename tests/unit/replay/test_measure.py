"""From counted tokens back to recorded ones."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.jobs.replaying.measure import Measured, Scale, measured

SIZES = st.lists(st.tuples(st.integers(1, 5_000), st.integers(1, 50)), min_size=1, max_size=20)


@given(SIZES, st.data())
def test_ends_of_content_blocks_are_exact_and_order_is_kept(
    sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    recorded = list(accumulate(size for size, _ in sizes))
    counted = [count for _, count in sizes]
    ends = list(accumulate(counted))
    scale = Scale(recorded, counted, [0] * len(counted))
    assert [scale.place(end) for end in (0, *ends)] == [0, *recorded]
    assert scale.is_whole
    inside = sorted(data.draw(st.lists(st.integers(0, ends[-1] + 3), max_size=20)))
    places = [scale.place(tokens) for tokens in inside]
    assert places == sorted(places)
    assert all(0 <= place <= recorded[-1] for place in places)


def test_the_token_that_names_a_speaker_belongs_to_no_content() -> None:
    scale = Scale([100, 200], [10, 11], [0, 1])
    assert scale.place(11) == 100
    assert scale.is_whole
    assert scale.place(12) == 100 + 2 * 100 // 11
    assert not scale.is_whole


def response(read: int, five: int, hour: int, uncached: int, **own: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": uncached,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": five + hour,
        "cache_creation": {"ephemeral_5m_input_tokens": five, "ephemeral_1h_input_tokens": hour},
    }
    return {"usage": usage, "cacheaudit": own}


def found(body: dict[str, Any], recorded: list[int], counted: list[int]) -> Measured:
    result = measured(body, recorded, counted, [0] * len(counted), 2.5)
    assert result is not None
    return result


def test_parts_of_a_response() -> None:
    result = found(response(10, 30, 20, 6), [1_000, 3_000, 6_000, 6_500], [10, 20, 30, 5])
    parts = result.parts
    assert (parts.cache_read, parts.cache_write, parts.uncached_input) == (1_000, 5_000, 500)
    # What lives longer stands in front.
    assert parts.cache_write_by_ttl == {"1h": 2_000, "5m": 3_000}
    assert (result.sent.cache_read, result.sent.cache_write, result.sent.uncached_input) == (
        10,
        50,
        6,
    )
    assert result.is_whole


def test_the_beginning_of_the_answer_is_no_input_of_the_record() -> None:
    result = found(response(0, 10, 0, 1), [100], [10])
    assert result.parts.uncached_input == 0
    assert result.sent.uncached_input == 1


def test_what_the_engine_says_of_itself() -> None:
    own = {
        "miss": "evicted",
        "evicted_input_tokens": 7,
        "queue_seconds": 0.25,
        "prefill_seconds": 0.5,
        "engine": {"restore_seconds": 0.125},
    }
    result = found(response(0, 0, 0, 10, **own), [100], [10])
    assert (result.miss, result.evicted) == ("evicted", 7)
    assert (result.first_token_s, result.restore_s) == (0.75, 0.125)


def test_a_foreign_server_says_less() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 5}
    result = found({"usage": usage}, [100, 150], [10, 5])
    assert result.parts.cache_write_by_ttl == {"5m": 50}
    assert (result.first_token_s, result.miss, result.restore_s) == (2.5, None, None)


def test_no_usage_is_no_result() -> None:
    assert measured({}, [1], [1], [0], 1.0) is None


def test_counts_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="2 content blocks recorded, 1 counted"):
        Scale([1, 2], [1], [0])
