"""Calls that are billed entry by entry."""

from __future__ import annotations

from typing import Any

from cacheaudit.dialects.after import with_stop_reason, with_write_ttl
from cacheaudit.dialects.detect import normalise
from cacheaudit.model.usage import (
    FLAG_BAD_TYPE,
    FLAG_FIELDS_DISAGREE,
    FLAG_NOT_BILLED,
    FLAG_TTL_ASSUMED,
    Usage,
)


def get(record: dict[str, Any]) -> Usage:
    usage = normalise(record)
    assert usage is not None
    return usage


def anthropic(**fields: Any) -> dict[str, Any]:
    return {
        "input_tokens": 10,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 40,
        **fields,
    }


def entry(kind: str, fresh: int, read: int, out: int, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": out,
        **more,
    }


def test_server_tool_passes_sum_but_the_context_is_the_last() -> None:
    passes = [entry("message", 10, 60_000 + n * 15_000, 100) for n in range(3)]
    top = entry("message", 30, 225_000, 300)
    del top["type"]
    usage = get({**top, "iterations": passes})
    assert (usage.cache_read, usage.total_input, usage.context_input) == (225_000, 225_030, 90_010)
    assert (usage.output, len(usage.parts), usage.flags) == (300, 3, ())


def test_advisor_is_billed_with_its_own_model() -> None:
    top = entry("message", 100, 0, 20)
    del top["type"]
    usage = get(
        {
            **top,
            "iterations": [
                entry("message", 100, 0, 20),
                entry("advisor_message", 900, 50, 70, model="claude-opus-5"),
            ],
        }
    )
    assert [(p.kind, p.model, p.output) for p in usage.parts] == [
        ("message", None, 20),
        ("advisor_message", "claude-opus-5", 70),
    ]
    assert (usage.total_input, usage.output, usage.context_input) == (1050, 90, 100)
    assert usage.flags == ()


def test_earlier_passes_of_the_serving_model_are_billed() -> None:
    top = entry("message", 25, 0, 30)
    del top["type"]
    entries = [
        entry("message", 10, 0, 0, model="claude-fable-5"),
        entry("message", 10, 0, 12, model="claude-opus-5"),
        entry("fallback_message", 15, 0, 18, model="claude-opus-5"),
    ]
    usage = get({**top, "iterations": entries})
    assert [p.output for p in usage.parts] == [12, 18]
    for record in entries[:2]:
        del record["model"]
    unnamed = get({**top, "iterations": entries[1:]})
    assert [p.output for p in unnamed.parts] == [12, 18]
    declined = get({**top, "input_tokens": 15, "output_tokens": 18, "iterations": entries})
    assert [p.output for p in declined.parts] == [18]
    assert declined.flags == ()


def test_iterations_that_contradict_the_sums_are_flagged() -> None:
    top = entry("message", 100, 0, 20)
    del top["type"]
    usage = get({**top, "iterations": [entry("message", 100, 0, 21), "x"]})
    assert set(usage.flags) == {FLAG_FIELDS_DISAGREE, FLAG_BAD_TYPE}
    assert usage.output == 21


def test_an_entry_without_a_split_takes_the_only_lifetime_of_the_call() -> None:
    bare = entry("message", 1, 0, 2, cache_creation_input_tokens=500)
    del bare["cache_creation"]
    top = anthropic(
        input_tokens=1,
        cache_read_input_tokens=0,
        output_tokens=2,
        cache_creation_input_tokens=500,
        cache_creation={"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 500},
    )
    usage = get({**top, "iterations": [bare]})
    assert (usage.write_1h, usage.write_other, usage.total_input) == (500, None, 501)


# -- what the rest of the call says ----------------------------------------------------------------


def test_assumed_lifetime_and_refusal() -> None:
    usage = get({"input_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 9})
    labelled = with_write_ttl(usage, "1h")
    assert (labelled.write_other, labelled.write_other_ttl) == (9, "1h")
    assert labelled.flags == (FLAG_TTL_ASSUMED,)
    assert with_write_ttl(usage, None) is usage
    refused = with_stop_reason(get(anthropic(output_tokens=0)), "refusal")
    assert refused.flags == (FLAG_NOT_BILLED,)
    assert with_stop_reason(get(anthropic()), "refusal").flags == ()
    assert with_stop_reason(get(anthropic(output_tokens=0)), "end_turn").flags == ()


# -- invariants ------------------------------------------------------------------------------------

Parts = tuple[int, int, int, int, int]
