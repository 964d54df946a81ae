"""Every usage field that the provider rules name, and what contradictions become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from cacheaudit.dialects.detect import all_dialects, normalise
from cacheaudit.dialects.otel import READ, WRITE
from cacheaudit.model.usage import (
    FLAG_BAD_TYPE,
    FLAG_CACHE_OVER_INPUT,
    FLAG_FIELDS_DISAGREE,
    FLAG_NEGATIVE,
    FLAG_SPLIT,
    FLAG_TOTAL,
    FLAG_TTL_ASSUMED,
    Usage,
)

COUNT = st.integers(min_value=0, max_value=2_000_000)


def get(record: dict[str, Any]) -> Usage:
    usage = normalise(record)
    assert usage is not None
    return usage


def test_each_record_finds_its_dialect() -> None:
    records = {
        "anthropic": {"input_tokens": 1, "cache_read_input_tokens": 0, "output_tokens": 1},
        "bedrock": {"inputTokens": 1, "outputTokens": 1, "cacheReadInputTokens": 0},
        "codex": {"input_tokens": 1, "cached_input_tokens": 0, "output_tokens": 1},
        "deepseek": {"prompt_tokens": 1, "prompt_cache_hit_tokens": 0},
        "gemini": {"promptTokenCount": 1, "candidatesTokenCount": 1},
        "kimi": {"input_other": 1, "input_cache_read": 0, "input_cache_creation": 0, "output": 1},
        "langfuse": {"input": 1, "input_cached_tokens": 0, "output": 1},
        "litellm": {"prompt_tokens": 1, "cache_read_input_tokens": 0},
        "openai_chat": {"prompt_tokens": 1, "completion_tokens": 1},
        "openai_responses": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        "otel": {"gen_ai.usage.input_tokens": 1},
        "pi": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0},
        "plain": {"total_input": 1, "cache_read": 0, "cache_write": 0, "output": 1},
    }
    assert {d.name for d in all_dialects()} == set(records)
    for name, record in records.items():
        assert get(record).dialect == name, name
    assert normalise({"tokens": 3}) is None
    assert normalise({}) is None


@pytest.mark.parametrize(
    "name",
    ["output_tokens", "completion_tokens", "candidatesTokenCount", "outputTokens", "output"],
)
def test_an_answer_whose_beginning_is_missing_keeps_its_output(name: str) -> None:
    usage = get({name: 44})
    assert (usage.output, usage.total_input, usage.uncached_input) == (44, None, None)
    assert (usage.cache_read, usage.cache_write) == (None, None)


def test_anthropic_modifiers() -> None:
    usage = get(
        {
            "input_tokens": 5,
            "cache_read_input_tokens": 10,
            "cache_creation_input_tokens": 300,
            "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
            "output_tokens": 50,
            "output_tokens_details": {"thinking_tokens": 30},
            "server_tool_use": {"web_search_requests": 2},
            "service_tier": "priority",
            "speed": "fast",
            "inference_geo": "us",
        }
    )
    assert (usage.service_tier, usage.speed, usage.inference_geo) == ("priority", "fast", "us")
    assert (usage.web_searches, usage.reasoning, usage.total_input) == (2, 30, 315)
    assert (usage.write_5m, usage.write_1h, usage.flags) == (100, 200, ())


def test_the_documented_mixed_lifetimes() -> None:
    usage = get(
        {
            "input_tokens": 2048,
            "cache_read_input_tokens": 1800,
            "cache_creation_input_tokens": 248,
            "cache_creation": {"ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100},
            "output_tokens": 503,
        }
    )
    assert (usage.uncached_input, usage.cache_read) == (2048, 1800)
    assert (usage.write_5m, usage.write_1h, usage.total_input) == (148, 100, 4096)


def test_openai_responses_lifetimes() -> None:
    usage = get(
        {
            "input_tokens": 15000,
            "input_tokens_details": {
                "cached_tokens": 12000,
                "cache_write_tokens": 2900,
                "cache_write_tokens_details": {"ttl_30m_tokens": 900, "ttl_12h_tokens": 2000},
            },
            "output_tokens": 80,
            "output_tokens_details": {"reasoning_tokens": 64},
            "total_tokens": 15080,
        }
    )
    assert (usage.uncached_input, usage.cache_read) == (100, 12000)
    assert (usage.write_30m, usage.write_12h, usage.write_other) == (900, 2000, None)
    assert (usage.output, usage.reasoning, usage.flags) == (80, 64, ())


def test_openai_writes_without_a_label_stay_unlabelled() -> None:
    first = get(
        {
            "input_tokens": 12000,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 12000},
            "output_tokens": 1,
        }
    )
    assert (first.uncached_input, first.write_other, first.write_other_ttl) == (0, 12000, None)
    second = get(
        {
            "prompt_tokens": 15000,
            "prompt_tokens_details": {"cached_tokens": 12000, "cache_write_tokens": 3000},
            "completion_tokens": 1,
        }
    )
    assert (second.uncached_input, second.cache_read, second.write_other) == (0, 12000, 3000)


def test_qwen_split_inside_the_details() -> None:
    usage = get(
        {
            "prompt_tokens": 2000,
            "completion_tokens": 3,
            "prompt_tokens_details": {
                "cached_tokens": 500,
                "cache_creation_input_tokens": 1200,
                "cache_creation": {"ephemeral_5m_input_tokens": 1200},
            },
        }
    )
    assert (usage.uncached_input, usage.write_5m, usage.write_other) == (300, 1200, None)


@pytest.mark.parametrize("place", ["top", "details", "both"])
def test_cached_tokens_at_the_top_level(place: str) -> None:
    record: dict[str, Any] = {"prompt_tokens": 700, "completion_tokens": 3, "total_tokens": 703}
    if place != "details":
        record["cached_tokens"] = 512
    if place != "top":
        record["prompt_tokens_details"] = {"cached_tokens": 512}
    usage = get(record)
    assert (usage.cache_read, usage.uncached_input, usage.flags) == (512, 188, ())


def test_reasoning_outside_the_completion_is_seen_by_the_sum() -> None:
    record = {
        "prompt_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens": 20,
        "completion_tokens_details": {"reasoning_tokens": 300},
        "total_tokens": 420,
    }
    usage = get(record)
    assert (usage.output, usage.reasoning, usage.flags) == (320, 300, ())
    inside = get({**record, "completion_tokens": 320})
    assert (inside.output, inside.reasoning, inside.flags) == (320, 300, ())


def test_pi_one_hour_writes_are_a_part_of_all_writes() -> None:
    usage = get(
        {
            "input": 3,
            "output": 90,
            "cacheRead": 1000,
            "cacheWrite": 500,
            "cacheWrite1h": 200,
            "totalTokens": 1593,
            "cost": {"total": 0.1},
        }
    )
    assert (usage.write_1h, usage.write_other, usage.cache_write) == (200, 300, 500)
    assert (usage.total_input, usage.flags) == (1503, ())


def test_kimi_wire() -> None:
    usage = get(
        {"input_other": 11, "input_cache_read": 2048, "input_cache_creation": 256, "output": 9}
    )
    assert (usage.total_input, usage.uncached_input, usage.cache_read) == (2315, 11, 2048)
    assert (usage.write_other, usage.output) == (256, 9)


@pytest.mark.parametrize("name", READ)
def test_every_read_alias_of_opentelemetry(name: str) -> None:
    usage = get({"gen_ai.usage.input_tokens": "100", name: "60", "gen_ai.usage.output_tokens": 2})
    assert (usage.total_input, usage.cache_read, usage.uncached_input) == (100, 60, 40)
    assert usage.flags == ()


@pytest.mark.parametrize("name", WRITE)
def test_every_write_alias_of_opentelemetry(name: str) -> None:
    usage = get({"llm.token_count.prompt": 100, READ[0]: 10, name: 60})
    assert (usage.cache_read, usage.write_other, usage.uncached_input) == (10, 60, 30)


def test_opentelemetry_split_and_reasoning() -> None:
    usage = get(
        {
            "gen_ai.usage.input_tokens": 1000,
            "gen_ai.usage.cache_read.input_tokens": 100,
            "gen_ai.usage.cache_write.input_tokens": 800,
            "anthropic.usage.cache_creation.ephemeral_5m_input_tokens": 300,
            "anthropic.usage.cache_creation.ephemeral_1h_input_tokens": 500,
            "gen_ai.usage.output_tokens": 50,
            "gen_ai.usage.reasoning.output_tokens": 20,
        }
    )
    assert (usage.write_5m, usage.write_1h, usage.uncached_input) == (300, 500, 100)
    assert usage.reasoning == 20


def test_opentelemetry_impossible_row_is_flagged_and_not_clamped() -> None:
    usage = get(
        {
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.usage.cache_read.input_tokens": 900,
            "gen_ai.usage.cache_creation.input_tokens": 100,
        }
    )
    assert usage.flags == (FLAG_CACHE_OVER_INPUT,)
    assert (usage.cache_read, usage.write_other) == (900, 100)
    assert (usage.uncached_input, usage.total_input) == (None, None)


@pytest.mark.parametrize("total", [130_313, None])
@pytest.mark.parametrize("stated", [5, 130_213])
def test_langfuse_parts_under_the_names_of_the_messages_api(stated: int, total: int | None) -> None:
    record = {
        "input": stated,
        "cache_read_input_tokens": 128_955,
        "cache_creation_input_tokens": 1_253,
        "output": 100,
    }
    usage = get(record if total is None else record | {"total": total})
    assert usage.dialect == "langfuse"
    assert (usage.uncached_input, usage.cache_read, usage.write_other) == (5, 128_955, 1_253)
    assert (usage.total_input, usage.output) == (130_213, 100)


def test_langfuse_total_that_leaves_the_parts_inside() -> None:
    usage = get({"input": 900, "input_cached_tokens": 300, "output": 10, "total": 910})
    assert (usage.total_input, usage.uncached_input, usage.cache_read) == (900, 600, 300)
    assert usage.flags == ()
    split = get(
        {
            "input": 5,
            "input_cache_read": 100,
            "input_cache_creation_5m": 30,
            "input_cache_creation_1h": 40,
            "output": 1,
            "total": 176,
        }
    )
    assert (split.total_input, split.write_5m, split.write_1h, split.flags) == (175, 30, 40, ())


def test_plain_log_from_a_csv_row() -> None:
    usage = get({"total_input": "9000", "cache_read": "7000", "cache_write": "1500", "output": ""})
    assert (usage.total_input, usage.uncached_input, usage.cache_read) == (9000, 500, 7000)
    assert (usage.write_other, usage.output, usage.flags) == (1500, None, ())


@pytest.mark.parametrize(
    "writes",
    [
        {"cache_write_5m": 100, "cache_write_1h": 200},
        {"cache_write": {"5m": 100, "1h": 200}},
        {"cache_write": 300, "cache_write_5m": 100, "cache_write_1h": 200},
    ],
)
def test_plain_log_with_lifetimes(writes: dict[str, Any]) -> None:
    usage = get({"uncached_input": 7, "cache_read": 10, "output": 4, **writes})
    assert (usage.write_5m, usage.write_1h, usage.write_other) == (100, 200, None)
    assert (usage.total_input, usage.flags) == (317, ())


def test_plain_log_that_gives_the_lifetime_beside_the_count() -> None:
    usage = get({"total_input": 50, "cache_read": 0, "cache_write": 50, "cache_write_ttl": "1h"})
    assert (usage.write_1h, usage.write_other, usage.uncached_input) == (50, None, 0)
    assumed = get({"total_input": 50, "cache_read": 0, "cache_write": 50, "write_other_ttl": "30m"})
    assert (assumed.write_other, assumed.write_other_ttl) == (50, "30m")
    assert assumed.flags == (FLAG_TTL_ASSUMED,)


def test_plain_log_whose_parts_differ_from_its_total() -> None:
    usage = get({"total_input": 100, "uncached_input": 10, "cache_read": 20, "cache_write": 30})
    assert usage.flags == (FLAG_TOTAL,)
    assert (usage.total_input, usage.uncached_input, usage.cache_read) == (None, 10, 20)


# -- contradictions ------------------------------------------------------------------------------


def anthropic(**fields: Any) -> dict[str, Any]:
    return {
        "input_tokens": 10,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 40,
        **fields,
    }


def test_split_below_the_total_leaves_the_rest_unlabelled() -> None:
    usage = get(anthropic(cache_creation_input_tokens=50))
    assert usage.flags == (FLAG_SPLIT,)
    assert (usage.write_5m, usage.write_1h, usage.write_other) == (30, 0, 20)
    assert usage.total_input == 80


def test_split_above_the_total_leaves_no_write_certain() -> None:
    usage = get(anthropic(cache_creation_input_tokens=29))
    assert usage.flags == (FLAG_SPLIT,)
    assert (usage.cache_write, usage.total_input) == (None, None)
    assert (usage.uncached_input, usage.cache_read, usage.output) == (10, 20, 40)


@pytest.mark.parametrize(
    "field", ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
)
def test_a_negative_part_makes_the_sum_unknown(field: str) -> None:
    usage = get(anthropic(**{field: -1}, cache_creation=None))
    assert FLAG_NEGATIVE in usage.flags
    assert usage.total_input is None
    assert usage.output == 40


def test_a_negative_output_leaves_the_input_alone() -> None:
    usage = get(anthropic(output_tokens=-3))
    assert usage.flags == (FLAG_NEGATIVE,)
    assert (usage.output, usage.total_input) == (None, 60)


@pytest.mark.parametrize(("value", "kept"), [("12", 12), (12.0, 12), (True, None), ([], None)])
def test_wrong_types_are_read_where_they_can_be_and_flagged(value: Any, kept: int | None) -> None:
    usage = get(anthropic(cache_read_input_tokens=value))
    assert FLAG_BAD_TYPE in usage.flags
    assert usage.cache_read == kept
    assert usage.total_input == (None if kept is None else 52)


@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf"), "x", 10**30, "9" * 5000, {}])
def test_what_is_no_count_is_unknown(value: Any) -> None:
    usage = get(anthropic(input_tokens=value))
    assert FLAG_BAD_TYPE in usage.flags
    assert (usage.uncached_input, usage.total_input) == (None, None)


def test_inclusive_contradictions() -> None:
    over = get({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 11}})
    assert over.flags == (FLAG_CACHE_OVER_INPUT,)
    assert (over.cache_read, over.uncached_input, over.total_input) == (11, None, None)
    wrong = get(
        {
            "prompt_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens": 5,
            "total_tokens": 99,
        }
    )
    assert wrong.flags == (FLAG_TOTAL,)
    assert (wrong.uncached_input, wrong.cache_read, wrong.output) == (6, 4, 5)
    differ = get(
        {"prompt_tokens": 10, "cached_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    )
    assert differ.flags == (FLAG_FIELDS_DISAGREE,)
    negative = get({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": -4}})
    assert FLAG_NEGATIVE in negative.flags
    assert (negative.total_input, negative.uncached_input, negative.cache_read) == (10, None, None)


def test_deepseek_contradictions() -> None:
    usage = get(
        {"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 30}
    )
    assert usage.flags == (FLAG_TOTAL,)
    assert (usage.uncached_input, usage.cache_read, usage.total_input) == (30, 64, None)
    usage = get(
        {
            "prompt_tokens": 100,
            "prompt_cache_hit_tokens": 64,
            "prompt_cache_miss_tokens": 36,
            "prompt_tokens_details": {"cached_tokens": 60},
        }
    )
    assert usage.flags == (FLAG_FIELDS_DISAGREE,)
    assert usage.total_input == 100


def test_bedrock_duplicate_names_that_differ() -> None:
    usage = get(
        {
            "inputTokens": 1,
            "outputTokens": 1,
            "cacheReadInputTokens": 5,
            "cacheReadInputTokenCount": 6,
        }
    )
    assert (usage.cache_read, usage.flags) == (5, (FLAG_FIELDS_DISAGREE,))


def test_bedrock_lifetimes() -> None:
    usage = get(
        {
            "inputTokens": 1,
            "outputTokens": 2,
            "totalTokens": 63,
            "cacheReadInputTokens": 0,
            "cacheWriteInputTokens": 60,
            "cacheDetails": [{"ttl": "5m", "inputTokens": 20}, {"ttl": "1h", "inputTokens": 40}],
        }
    )
    assert (usage.write_5m, usage.write_1h, usage.write_other, usage.flags) == (20, 40, None, ())
