"""Recorded responses and reported accounting faults, each as the smallest record with figures."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from cacheaudit.dialects.after import reported_cost
from cacheaudit.dialects.detect import normalise
from cacheaudit.dialects.stream import StreamMerger
from cacheaudit.model.usage import (
    FLAG_FIELDS_DISAGREE,
    FLAG_SPLIT_UNKNOWN,
    Usage,
)


def parts(usage: Usage | None) -> dict[str, int | None]:
    assert usage is not None
    shown = {
        "total": usage.total_input,
        "fresh": usage.uncached_input,
        "read": usage.cache_read,
        "w5": usage.write_5m,
        "w1": usage.write_1h,
        "w30": usage.write_30m,
        "w12": usage.write_12h,
        "wo": usage.write_other,
        "out": usage.output,
    }
    return {name: count for name, count in shown.items() if count is not None}


def anthropic(fresh: int, w5: int, w1: int, read: int, out: int) -> dict[str, Any]:
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": w5 + w1,
        "cache_read_input_tokens": read,
        "cache_creation": {"ephemeral_5m_input_tokens": w5, "ephemeral_1h_input_tokens": w1},
        "output_tokens": out,
        "service_tier": "standard",
    }


def stream(start: dict[str, Any], delta: dict[str, Any]) -> Usage | None:
    merger = StreamMerger()
    merger.feed({"type": "message_start", "message": {"id": "msg_1", "usage": start}})
    merger.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": delta})
    merger.feed({"type": "message_stop"})
    return merger.result().normalised()


def bedrock(fresh: int, read: int, write: int, out: int, total: int) -> dict[str, Any]:
    return {
        "inputTokens": fresh,
        "outputTokens": out,
        "totalTokens": total,
        "cacheReadInputTokens": read,
        "cacheReadInputTokenCount": read,
        "cacheWriteInputTokens": write,
        "cacheWriteInputTokenCount": write,
    }


# -- the table of recorded responses -----------------------------------------------------------


def test_openllmetry_stream_writes_then_reads() -> None:
    start = {
        "input_tokens": 4,
        "cache_creation_input_tokens": 1167,
        "cache_read_input_tokens": 0,
        "output_tokens": 1,
    }
    first = parts(stream(start, {"output_tokens": 289}))
    assert first == {"total": 1171, "fresh": 4, "read": 0, "wo": 1167, "out": 289}
    start = {**start, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 1167}
    second = parts(stream(start, {"output_tokens": 256}))
    assert second == {"total": 1171, "fresh": 4, "read": 1167, "wo": 0, "out": 256}


def test_openllmetry_bedrock() -> None:
    first = parts(normalise(bedrock(4, 0, 18131, 20, 18155)))
    assert first == {"total": 18135, "fresh": 4, "read": 0, "wo": 18131, "out": 20}
    second = parts(normalise(bedrock(4, 18131, 0, 50, 18185)))
    assert second == {"total": 18135, "fresh": 4, "read": 18131, "wo": 0, "out": 50}


def test_ruby_llm_anthropic_round_trip() -> None:
    first = parts(normalise(anthropic(10, 7351, 0, 0, 4)))
    assert first == {"total": 7361, "fresh": 10, "read": 0, "w5": 7351, "w1": 0, "out": 4}
    second = parts(normalise(anthropic(10, 0, 0, 7351, 4)))
    assert second == {"total": 7361, "fresh": 10, "read": 7351, "w5": 0, "w1": 0, "out": 4}


def test_ruby_llm_bedrock_counts_a_duplicate_name_once() -> None:
    record = bedrock(10, 0, 7351, 4, 7365)
    record["cacheDetails"] = [{"inputTokens": 7351, "ttl": "5m"}]
    usage = normalise(record)
    assert parts(usage) == {"total": 7361, "fresh": 10, "read": 0, "w5": 7351, "out": 4}
    assert usage is not None
    assert usage.flags == ()
    assert (usage.total_input or 0) + (usage.output or 0) == 7365


def test_ruby_llm_openai_is_inclusive() -> None:
    record = {"prompt_tokens": 6165, "completion_tokens": 5, "total_tokens": 6170}
    cold = normalise({**record, "prompt_tokens_details": {"cached_tokens": 0}})
    assert parts(cold) == {"total": 6165, "fresh": 6165, "read": 0, "out": 5}
    warm = normalise({**record, "prompt_tokens_details": {"cached_tokens": 6016}})
    assert parts(warm) == {"total": 6165, "fresh": 149, "read": 6016, "out": 5}
    assert 6016 == 47 * 128


def test_ruby_llm_deepseek_says_one_thing_in_two_fields() -> None:
    usage = normalise(
        {
            "prompt_tokens": 359,
            "completion_tokens": 25,
            "total_tokens": 384,
            "prompt_tokens_details": {"cached_tokens": 256},
            "prompt_cache_hit_tokens": 256,
            "prompt_cache_miss_tokens": 103,
        }
    )
    assert parts(usage) == {"total": 359, "fresh": 103, "read": 256, "out": 25}
    assert usage is not None
    assert usage.flags == ()
    assert usage.dialect == "deepseek"


def test_dd_trace_one_hour_write() -> None:
    usage = parts(normalise(anthropic(17, 0, 2056, 0, 100)))
    assert usage == {"total": 2073, "fresh": 17, "read": 0, "w5": 0, "w1": 2056, "out": 100}


def test_dd_trace_bedrock_total_holds_the_cache() -> None:
    for record, expected in (
        (bedrock(11, 0, 1028, 264, 1303), (1039, 11, 0, 1028, 264)),
        (bedrock(12, 1028, 0, 185, 1225), (1040, 12, 1028, 0, 185)),
    ):
        usage = normalise(record)
        assert usage is not None
        assert usage.flags == ()
        assert (
            usage.total_input,
            usage.uncached_input,
            usage.cache_read,
            usage.write_other,
            usage.output,
        ) == expected


def test_pydantic_ai_first_call_is_warm_already() -> None:
    first = parts(normalise(anthropic(3, 0, 0, 1111, 406)))
    assert first == {"total": 1114, "fresh": 3, "read": 1111, "w5": 0, "w1": 0, "out": 406}
    second = parts(normalise(anthropic(3, 418, 0, 1111, 33)))
    assert second == {"total": 1532, "fresh": 3, "read": 1111, "w5": 418, "w1": 0, "out": 33}


# -- accounting faults (rows A of the case list) -------------------------------------------------


def test_a02_prompt_is_the_sum_of_the_additive_parts() -> None:
    usage = normalise({"input_tokens": 7, "cache_read_input_tokens": 10000, "output_tokens": 1})
    assert usage is not None
    assert usage.total_input == 10007


def test_a03_total_is_fresh_read_write_and_output() -> None:
    usage = normalise(anthropic(12, 300, 40, 5000, 77))
    assert usage is not None
    assert (usage.total_input or 0) + (usage.output or 0) == 12 + 300 + 40 + 5000 + 77


def test_a04_a_delta_repeats_and_does_not_add() -> None:
    start = {"input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 1}
    delta = {"input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 12}
    assert parts(stream(start, delta)) == {"total": 10, "fresh": 9, "read": 1, "out": 12}


def test_a06_cache_fields_only_at_the_start() -> None:
    start = {
        "input_tokens": 50,
        "cache_read_input_tokens": 2400,
        "cache_creation_input_tokens": 120,
        "output_tokens": 1,
    }
    usage = stream(start, {"output_tokens": 33})
    assert parts(usage) == {"total": 2570, "fresh": 50, "read": 2400, "wo": 120, "out": 33}


def test_a15_mixed_lifetimes_stay_apart() -> None:
    usage = normalise(anthropic(0, 600_000, 400_000, 0, 0))
    assert usage is not None
    assert (usage.write_5m, usage.write_1h, usage.cache_write) == (600_000, 400_000, 1_000_000)
    million = Decimal(1_000_000)
    cost = Decimal(usage.write_5m or 0) * Decimal("6.25") + Decimal(usage.write_1h or 0) * 10
    assert cost / million == Decimal("7.75")


def test_a19_litellm_prompt_includes_the_read() -> None:
    usage = normalise(
        {
            "prompt_tokens": 2459,
            "completion_tokens": 23,
            "total_tokens": 2482,
            "prompt_tokens_details": {"cached_tokens": 2455},
            "cache_read_input_tokens": 2455,
            "cache_creation_input_tokens": 0,
        }
    )
    assert parts(usage) == {"total": 2459, "fresh": 4, "read": 2455, "wo": 0, "out": 23}
    cost = Decimal(4) * Decimal("0.80") + Decimal(2455) * Decimal("0.08") + 23 * Decimal(4)
    assert round(cost / 1_000_000, 6) == Decimal("0.000292")


def test_a20_cached_tokens_are_not_at_the_full_rate() -> None:
    usage = normalise(
        {
            "prompt_tokens": 27147,
            "completion_tokens": 351,
            "total_tokens": 27498,
            "prompt_tokens_details": {"cached_tokens": 27146},
        }
    )
    assert usage is not None
    cost = (
        Decimal(usage.uncached_input or 0) * Decimal("1.4")
        + Decimal(usage.cache_read or 0) * Decimal("0.26")
        + Decimal(usage.output or 0) * Decimal("4.4")
    ) / 1_000_000
    assert cost == Decimal("0.00860376")


def test_a22_langfuse_parts_are_not_added_to_an_inclusive_input() -> None:
    attributes = {
        "gen_ai.usage.input_tokens": 130213,
        "gen_ai.usage.cache_read.input_tokens": 128955,
        "gen_ai.usage.cache_creation.input_tokens": 1253,
        "gen_ai.usage.output_tokens": 40,
    }
    assert parts(normalise(attributes)) == {
        "total": 130213,
        "fresh": 5,
        "read": 128955,
        "wo": 1253,
        "out": 40,
    }
    right = {"input": 5, "input_cache_read": 128955, "input_cache_creation": 1253, "output": 40}
    expected = {"total": 130213, "fresh": 5, "read": 128955, "wo": 1253, "out": 40}
    assert parts(normalise(right)) == expected
    doubled = normalise({**right, "input": 130213, "total": 260461})
    assert parts(doubled) == expected
    assert doubled is not None
    assert FLAG_FIELDS_DISAGREE in doubled.flags


def test_a25_compaction_is_billed_and_declined_attempts_are_not() -> None:
    record = {
        **anthropic(23_000, 0, 0, 0, 1000),
        "iterations": [
            {"type": "compaction", **anthropic(180_000, 200, 0, 1000, 3500)},
            {"type": "message", **anthropic(23_000, 0, 0, 0, 1000)},
        ],
    }
    usage = normalise(record)
    assert usage is not None
    assert usage.flags == ()
    assert usage.uncached_input == 203_000
    assert (usage.cache_read, usage.write_5m, usage.output) == (1000, 200, 4500)
    assert usage.total_input == 203_000 + 1000 + 200
    assert usage.context_input == usage.prompt_size == 23_000
    assert [part.kind for part in usage.parts] == ["compaction", "message"]

    record = {
        **anthropic(412, 0, 0, 0, 264),
        "iterations": [
            {"type": "message", "model": "claude-fable-5", **anthropic(408, 0, 0, 0, 0)},
            {"type": "fallback_message", "model": "claude-opus-5", **anthropic(412, 0, 0, 0, 264)},
        ],
    }
    usage = normalise(record)
    assert usage is not None
    assert usage.flags == ()
    assert [(p.kind, p.model) for p in usage.parts] == [("fallback_message", "claude-opus-5")]
    assert (usage.total_input, usage.output) == (412, 264)


def test_a29_nothing_is_subtracted_from_an_exclusive_count() -> None:
    usage = normalise(bedrock(5, 9000, 0, 10, 9015))
    assert usage is not None
    assert (usage.uncached_input, usage.cache_read, usage.flags) == (5, 9000, ())


@pytest.mark.parametrize(
    "extras",
    [
        {"cache_creation_input_tokens": 700},
        {"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 700}},
        {"prompt_tokens_details": {"cached_tokens": 0, "cache_creation_input_tokens": 700}},
    ],
)
def test_a30_gateways_put_writes_in_different_places(extras: dict[str, Any]) -> None:
    record = {"prompt_tokens": 1000, "completion_tokens": 5, "cost": 0.00345, **extras}
    usage = normalise(record)
    assert usage is not None
    assert (usage.total_input, usage.write_other, usage.cache_write) == (1000, 700, 700)
    assert usage.write_other_ttl is None
    assert reported_cost(record) == Decimal("0.00345")


def test_a31_deepseek_hits_and_misses_are_the_prompt() -> None:
    usage = normalise(
        {
            "prompt_tokens": 1500,
            "prompt_cache_hit_tokens": 1024,
            "prompt_cache_miss_tokens": 476,
            "completion_tokens": 9,
        }
    )
    assert parts(usage) == {"total": 1500, "fresh": 476, "read": 1024, "out": 9}


def test_a36_cached_is_a_part_of_the_total() -> None:
    usage = normalise(
        {
            "prompt_tokens": 10,
            "completion_tokens": 20,
            "total_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 5},
        }
    )
    assert usage is not None
    assert (usage.total_input or 0) + (usage.output or 0) == 30
    assert usage.cache_read == 5


def test_a37_null_keeps_the_earlier_value() -> None:
    start = {**anthropic(9, 30, 0, 400, 1)}
    delta = {
        "input_tokens": None,
        "cache_read_input_tokens": None,
        "cache_creation_input_tokens": None,
        "output_tokens": 21,
    }
    usage = stream(start, delta)
    assert parts(usage) == {"total": 439, "fresh": 9, "read": 400, "w5": 30, "w1": 0, "out": 21}


def test_a38_gemini_thoughts_are_output_and_cached_text_is_not_billed_twice() -> None:
    usage = normalise(
        {
            "promptTokenCount": 5000,
            "cachedContentTokenCount": 4000,
            "candidatesTokenCount": 60,
            "thoughtsTokenCount": 140,
            "toolUsePromptTokenCount": 25,
            "totalTokenCount": 5225,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 5000}],
            "cacheTokensDetails": [{"modality": "TEXT", "tokenCount": 4000}],
        }
    )
    assert parts(usage) == {"total": 5025, "fresh": 1025, "read": 4000, "out": 200}
    assert usage is not None
    assert (usage.reasoning, usage.flags) == (140, ())


def test_a39_a_missing_key_is_unknown_and_zero_is_zero() -> None:
    unknown = normalise({"input_tokens": 300, "output_tokens": 5})
    assert unknown is not None
    assert (unknown.total_input, unknown.cache_read, unknown.cache_write) == (300, None, None)
    assert unknown.uncached_input is None
    assert unknown.flags == (FLAG_SPLIT_UNKNOWN,)
    filled = normalise(
        {
            "input_tokens": 44,
            "cache_read_input_tokens": 256,
            "cache_creation_input_tokens": 0,
            "output_tokens": 5,
        }
    )
    assert parts(filled) == {"total": 300, "fresh": 44, "read": 256, "wo": 0, "out": 5}
    engine = normalise({"prompt_tokens": 300, "completion_tokens": 5, "total_tokens": 305})
    assert engine is not None
    assert (engine.total_input, engine.cache_read, engine.uncached_input) == (300, None, None)
    zero = normalise({"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": 0}})
    assert zero is not None
    assert (zero.cache_read, zero.uncached_input) == (0, 300)
    null = normalise({"prompt_tokens": 300, "prompt_tokens_details": None})
    assert null is not None
    assert null.cache_read is None
