"""From usage alone: what the numbers carry, and what they do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Boundary, Call, Span
from cacheaudit.model.usage import Usage
from cacheaudit.simulate.run import SimCall, run
from cacheaudit.simulate.sizes import Known
from fixtures.make import make_corpus


def told(
    identity: str, at: float, total: int, read: int, *, tail: int = 0, ttl: str = "5m", **more: Any
) -> Call:
    """Make a call of which only the usage is known."""
    written = total - read - tail
    usage = Usage(
        total_input=total,
        uncached_input=tail,
        cache_read=read,
        write_5m=written if ttl == "5m" else 0,
        write_1h=written if ttl == "1h" else 0,
    )
    fields: dict[str, Any] = {
        "session": "s",
        "provider": "anthropic",
        "surface": "claude_api",
        "model": "claude-opus-5",
        "started_at": at,
        "first_token_at": at + 1,
        "ended_at": at + 5,
        "usage": usage,
    }
    return Call(id=identity, **{**fields, **more})


COLD = {"1": Known(cold=True)}


def last(*calls: Call, known: dict[str, Known] | None = None) -> SimCall:
    return run(calls, known=COLD if known is None else known).calls[-1]


def reads(*calls: Call, known: dict[str, Known] | None = None) -> int | None:
    outcome = last(*calls, known=known).predicted
    return None if outcome is None else outcome.read


def test_a_lane_reads_what_it_cached_before() -> None:
    row = last(told("1", 0, 9_000, 0, tail=4), told("2", 60, 9_700, 8_996, tail=6))
    assert row.mode == "sizes"
    assert row.predicted is not None
    assert (row.predicted.read, row.predicted.writes) == (8_996, {"5m": 698})
    assert row.predicted.uncached == 6
    assert row.exact
    assert row.exact_writes


@pytest.mark.parametrize(("gap", "read"), [(299, 9_000), (300, 0)])
def test_a_pause_is_measured_from_start_to_start(gap: float, read: int) -> None:
    assert reads(told("1", 0, 9_000, 0), told("2", gap, 9_500, read)) == read


def test_the_lifetime_is_that_of_the_writes_before() -> None:
    first = told("1", 0, 9_000, 0, ttl="1h")
    assert reads(first, told("2", 3_000, 9_500, 9_000, ttl="1h")) == 9_000


@pytest.mark.parametrize(
    ("span", "reason"),
    [(Span(290, 299), None), (Span(290, 310), "lifetime_unclear"), (Span(301, 400), None)],
)
def test_a_pause_that_may_or_may_not_outlast_the_lifetime_is_refused(
    span: Span, reason: str | None
) -> None:
    second = told("2", 0, 9_500, 0, started_at=None, start_span=span, first_token_at=None)
    second = msgspec.structs.replace(second, ended_at=span.high + 3)
    assert last(told("1", 0, 9_000, 0), second).refused == reason


def test_after_a_refusal_the_lane_goes_on() -> None:
    unclear = told("2", 0, 9_500, 9_000, started_at=None, start_span=Span(290, 310))
    unclear = msgspec.structs.replace(unclear, first_token_at=312.0, ended_at=315.0)
    assert reads(told("1", 0, 9_000, 0), unclear, told("3", 400, 9_900, 9_500)) == 9_500


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "claude-sonnet-5"}, "model_changed"),
        ({"boundaries": (Boundary("compaction"),)}, "prefix_unknown"),
        ({"usage": Usage(total_input=4_000, uncached_input=0, cache_read=0, write_5m=4_000)},
         "prompt_shrank"),
        ({"usage": Usage(total_input=9_500, uncached_input=9_500, cache_read=0, write_5m=0)},
         "no_cache_use"),
        ({"usage": Usage(total_input=9_500)}, "no_usage"),
        ({"usage": None}, "no_usage"),
        ({"started_at": None, "first_token_at": None, "ended_at": None}, "no_start_time"),
        ({"provider": "acme", "model": "x"}, "unknown_rules"),
        ({"requests": None}, "many_requests"),
    ],
)  # fmt: skip
def test_what_the_numbers_do_not_carry_is_refused(change: dict[str, Any], reason: str) -> None:
    second = msgspec.structs.replace(told("2", 60, 9_500, 9_000), **change)
    row = {one.id: one for one in run([told("1", 0, 9_000, 0), second], known=COLD).calls}["2"]
    assert row.predicted is None
    assert row.refused == reason
    assert row.detail


def test_a_first_call_is_refused_unless_nothing_was_cached_before() -> None:
    assert last(told("1", 0, 9_000, 4_000), known={}).refused == "first_of_lane"
    assert reads(told("1", 0, 9_000, 0)) == 0


def test_another_lane_may_have_kept_a_prefix_alive() -> None:
    other = told("x", 100, 5_000, 0, lane="helper")
    late = told("2", 400, 9_500, 0)
    assert last(told("1", 0, 9_000, 0), other, late).refused == "kept_by_others"
    assert reads(told("1", 0, 9_000, 0), late) == 0


def test_calls_of_the_same_second_extend_the_call_before_them() -> None:
    calls = [told("1", 0, 9_000, 0), *(told(str(n), 60, 12_000, 9_000) for n in (2, 3, 4))]
    found = run(calls, known=COLD)
    assert [row.exact for row in found.calls] == [True] * 4


def test_known_facts_explain_what_the_numbers_hide() -> None:
    grown = [told("1", 0, 9_000, 0), told("2", 60, 9_500, 9_000)]
    known = {"1": Known(static=7_000, cold=True)}
    third = told("3", 120, 10_000, 7_000)
    assert reads(*grown, third, known=known) == 9_500
    assert reads(*grown, third, known={**known, "3": Known(setting="any")}) == 7_000
    assert reads(*grown, third, known={**known, "3": Known(changed="messages")}) == 7_000
    assert reads(*grown, third, known={**known, "3": Known(positions=25)}) == 7_000
    assert reads(*grown, third, known={**known, "3": Known(positions=19)}) == 9_500
    assert reads(*grown, third, known={**known, "3": Known(changed="tools")}) == 0
    assert reads(*grown, third, known={**known, "3": Known(static=7_300)}) == 0


def test_a_setting_that_comes_back_finds_the_older_prefix() -> None:
    calls = [
        told("1", 0, 9_000, 0),
        told("2", 60, 9_500, 7_000),
        told("3", 120, 10_000, 9_000),
    ]
    known = {"1": Known(static=7_000, cold=True), "2": Known(setting="any")}
    found = run(calls, known=known)
    assert [row.exact for row in found.calls] == [True] * 3


def test_providers_without_markers_read_in_their_steps() -> None:
    def openai(identity: str, at: float, total: int, read: int) -> Call:
        usage = Usage(total_input=total, uncached_input=total - read, cache_read=read)
        return told(
            identity, at, total, read, provider="openai", surface="openai", model="gpt-5.2",
            usage=usage,
        )  # fmt: skip

    row = last(openai("1", 0, 9_000, 0), openai("2", 60, 9_700, 8_960))
    assert row.exact
    assert row.predicted is not None
    assert row.predicted.written == 0


def test_usage_without_provider_or_model_is_taken_for_anthropics() -> None:
    bare = {"provider": None, "model": None, "surface": None}
    assert reads(told("1", 0, 9_000, 0, **bare), told("2", 60, 9_500, 9_000, **bare)) == 9_000


def test_a_generated_history(tmp_path: Path) -> None:
    """Planted causes: healthy calls are exact, expiries too, and the rest is never called exact."""
    assert make_corpus.main([str(tmp_path), "--size", "3MB", "--seed", "5"]) == 0
    truth = json.loads((tmp_path / "truth.json").read_text())
    causes = {event["message_id"]: event["cause"] for event in truth["events"]}
    corpus = Corpus([tmp_path / "projects"], Problems(), lambda done, whole: None)
    found = run(corpus.sessions())
    assert found.accuracy.calls > 100
    hidden = {"ttl_expired_1h", "ttl_expired_5m", "ttl_long_request"}
    for row in found.calls:
        cause = causes.get(row.id)
        if cause is None or cause in hidden:
            assert row.exact or row.refused, (row, cause)
        else:
            assert not row.exact, (row, cause)
