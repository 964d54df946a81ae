"""Sums of a replay: what no call tells is unknown, what some do not tell is a lower bound."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from cacheaudit.jobs.replaying.compare import _totals
from cacheaudit.report.replay import ReplayedCall
from cacheaudit.report.replay_text import replay_text
from tests.unit.replay.results import call, parts, result


def shown(*calls: ReplayedCall) -> str:
    out = io.StringIO()
    made = msgspec.structs.replace(result(*calls), totals=_totals(calls, 0))
    for part in replay_text(made):
        Console(file=out, width=200).print(part)
    return out.getvalue()


def figures(text: str) -> list[str]:
    """What the row of reported sums shows."""
    rows = (line.split() for line in text.splitlines())
    return next(" ".join(row[1:]) for row in rows if row[:1] == ["reported"]).split("  ")


def test_writes_that_no_call_reports_are_unknown() -> None:
    calls = [call("a", parts(10, None), parts(10, 5)), call("b", parts(20, None), parts(20, 0))]
    found = _totals(calls, 0)

    assert (found.reported.cache_read, found.reported.cache_write) == (30, None)
    assert found.replayed.cache_write == 5
    assert found.unknown_calls == {"reported": {"cache_write": 2}}
    assert figures(shown(*calls)) == ["30 – 0"]  # noqa: RUF001


def test_writes_that_some_calls_report_are_a_lower_bound() -> None:
    calls = [call("a", parts(10, None), parts(10, 5)), call("b", parts(20, 0), parts(20, 0))]

    assert _totals(calls, 0).reported.cache_write == 0
    assert figures(shown(*calls)) == ["30 ≥ 0 0"]


def test_first_tokens_without_a_time_took_no_zero_seconds() -> None:
    calls = [call("a", parts(10, 0), parts(10, 0))]

    assert _totals(calls, 0).first_token_s is None
    assert "First tokens" not in shown(*calls)
