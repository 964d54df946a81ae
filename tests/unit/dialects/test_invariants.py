"""Invariants of every dialect: parts add up, contradictions are flagged, nothing makes it fail."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.dialects.anthropic import DIALECT as ANTHROPIC
from cacheaudit.dialects.detect import all_dialects, normalise
from cacheaudit.model.usage import (
    FLAG_CACHE_OVER_INPUT,
    FLAG_SPLIT,
    FLAG_SPLIT_UNKNOWN,
    FLAG_TOTAL,
    Usage,
)

COUNT = st.integers(min_value=0, max_value=2_000_000)


def get(record: dict[str, Any]) -> Usage:
    usage = normalise(record)
    assert usage is not None
    return usage


def consistent(fresh: int, read: int, w5: int, w1: int, out: int) -> list[dict[str, Any]]:
    write, total = w5 + w1, fresh + read + w5 + w1
    return [
        {
            "input_tokens": fresh,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": write,
            "cache_creation": {"ephemeral_5m_input_tokens": w5, "ephemeral_1h_input_tokens": w1},
            "output_tokens": out,
        },
        {
            "inputTokens": fresh,
            "cacheReadInputTokens": read,
            "cacheReadInputTokenCount": read,
            "cacheWriteInputTokens": write,
            "cacheDetails": [{"ttl": "5m", "inputTokens": w5}, {"ttl": "1h", "inputTokens": w1}],
            "outputTokens": out,
            "totalTokens": total + out,
        },
        {
            "prompt_tokens": total,
            "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
            "completion_tokens": out,
            "total_tokens": total + out,
        },
        {
            "prompt_tokens": total,
            "prompt_tokens_details": {"cached_tokens": read},
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": write,
            "completion_tokens": out,
        },
        {
            "input_tokens": total,
            "input_tokens_details": {
                "cached_tokens": read,
                "cache_write_tokens": write,
                "cache_write_tokens_details": {"ttl_30m_tokens": w5, "ttl_12h_tokens": w1},
            },
            "output_tokens": out,
            "total_tokens": total + out,
        },
        {
            "input": fresh,
            "cacheRead": read,
            "cacheWrite": write,
            "cacheWrite1h": w1,
            "output": out,
            "totalTokens": total + out,
        },
        {
            "input_other": fresh,
            "input_cache_read": read,
            "input_cache_creation": write,
            "output": out,
        },
        {
            "gen_ai.usage.input_tokens": total,
            "gen_ai.usage.cache_read.input_tokens": read,
            "gen_ai.usage.cache_creation.input_tokens": write,
            "gen_ai.usage.output_tokens": out,
        },
        {"total_input": total, "cache_read": read, "cache_write_5m": w5, "cache_write_1h": w1},
        {"uncached_input": fresh, "cache_read": read, "cache_write": {"5m": w5, "1h": w1}},
    ]


@given(COUNT, COUNT, COUNT, COUNT, COUNT)
def test_parts_of_consistent_records_sum_up(
    fresh: int, read: int, w5: int, w1: int, out: int
) -> None:
    for record in consistent(fresh, read, w5, w1, out):
        usage = get(record)
        assert usage.flags == (), record
        assert usage.uncached_input == fresh, record
        assert usage.cache_read == read
        assert usage.cache_write == w5 + w1
        assert usage.total_input == fresh + read + w5 + w1
        assert usage.output in (out, None)


@given(COUNT, COUNT, COUNT)
def test_hits_and_misses(hit: int, miss: int, out: int) -> None:
    record = {
        "prompt_tokens": hit + miss,
        "prompt_cache_hit_tokens": hit,
        "prompt_cache_miss_tokens": miss,
        "completion_tokens": out,
    }
    usage = get(record)
    assert (usage.total_input, usage.uncached_input, usage.flags) == (hit + miss, miss, ())
    assert FLAG_TOTAL in get({**record, "prompt_tokens": hit + miss + 1}).flags


@given(COUNT, COUNT, COUNT, COUNT, st.integers(min_value=-5, max_value=5))
def test_a_split_is_flagged_exactly_when_it_differs(
    fresh: int, read: int, w5: int, w1: int, off: int
) -> None:
    total = w5 + w1 + off
    if total < 0:
        return
    usage = ANTHROPIC.normalise(
        {
            "input_tokens": fresh,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": total,
            "cache_creation": {"ephemeral_5m_input_tokens": w5, "ephemeral_1h_input_tokens": w1},
        }
    )
    assert (FLAG_SPLIT in usage.flags) == (off != 0)
    known = (usage.uncached_input, usage.cache_read, usage.cache_write)
    if usage.total_input is not None:
        assert usage.total_input == sum(part or 0 for part in known)
    else:
        assert off < 0


@given(COUNT, COUNT, COUNT)
def test_cache_over_input_is_flagged_exactly_then(total: int, read: int, write: int) -> None:
    usage = get(
        {
            "prompt_tokens": total,
            "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
        }
    )
    assert (FLAG_CACHE_OVER_INPUT in usage.flags) == (read + write > total)
    assert (usage.cache_read, usage.write_other) == (read, write)
    if usage.uncached_input is not None:
        assert usage.uncached_input + read + write == total


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = sorted(
    {name for record in consistent(1, 2, 3, 4, 5) for name in record}
    | {
        "iterations",
        "server_tool_use",
        "output_tokens_details",
        "completion_tokens_details",
        "prompt_cache_hit_tokens",
        "prompt_cache_miss_tokens",
        "promptTokenCount",
        "cachedContentTokenCount",
        "thoughtsTokenCount",
        "cached_input_tokens",
        "cached_tokens",
        "input_cache_creation_5m",
        "write_other_ttl",
        "cache_write_ttl",
        "total",
        "reasoning",
        "service_tier",
    }
)
ENTRY = st.dictionaries(
    st.sampled_from(["type", "model", "input_tokens", "output_tokens", "ttl", "inputTokens"]),
    JSON | st.sampled_from(["message", "fallback_message", "compaction"]) | COUNT,
    max_size=5,
)


@given(st.dictionaries(st.sampled_from(NAMES), JSON | COUNT | st.lists(ENTRY, max_size=3)))
def test_no_json_makes_normalising_fail(record: dict[str, Any]) -> None:
    for dialect in all_dialects():
        usage = dialect.normalise(record)
        assert isinstance(dialect.matches(record), bool)
        counts = [
            value
            for name, value in msgspec.structs.asdict(usage).items()
            if isinstance(value, int) and name != "parts"
        ]
        assert all(type(count) is int and count >= 0 for count in counts)
        if usage.is_split_known and usage.total_input is not None and not usage.parts:
            split = (usage.uncached_input, usage.cache_read, usage.cache_write)
            assert usage.total_input == sum(part or 0 for part in split)
        if usage.uncached_input is not None and usage.cache_read is None:
            assert FLAG_SPLIT_UNKNOWN in usage.flags or usage.parts


@given(st.dictionaries(st.sampled_from(NAMES), JSON | COUNT))
def test_the_dialect_depends_on_the_names_alone(record: dict[str, Any]) -> None:
    matching = [dialect for dialect in all_dialects() if dialect.matches(record)]
    usage = normalise(record)
    assert (usage.dialect if usage else None) == (matching[0].name if matching else None)
    assert matching == [d for d in all_dialects() if d.matches(dict.fromkeys(record))]
