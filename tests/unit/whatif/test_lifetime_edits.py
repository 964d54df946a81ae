"""Lifetimes and refreshing: what a pause costs, and what bridges it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cacheaudit.simulate.edit import parse_edit
from cacheaudit.simulate.edits.keep_alive import pings_worth, refresh_after
from cacheaudit.simulate.whatif import evaluate
from tests.unit.whatif.builders import base, growing, prompt_of, refusal, saves, written_read


def test_an_hour_bridges_a_pause_and_costs_its_premium() -> None:
    calls = growing([0, 400, 410])
    assert written_read(calls) == [(8_000, 0), (9_000, 0), (1_000, 9_000)]
    changed = list(parse_edit("ttl").apply(calls))
    assert written_read(changed) == [(8_000, 0), (1_000, 8_000), (1_000, 9_000)]
    assert saves(calls, "ttl") == 8_000 * Decimal("1.15") - 10_000 * Decimal("0.75")


def test_a_longer_lifetime_may_not_stand_behind_a_shorter_one() -> None:
    assert "outlive" in refusal(growing([0, 10]), "ttl:level=messages,ttl=1h")


def test_system_alone_may_live_longer() -> None:
    calls = growing([0, 400])
    changed = list(parse_edit("ttl:level=system").apply(calls))
    # Tools and system, 4,000 tokens, outlive the pause; the messages do not.
    assert written_read(changed) == [(8_000, 0), (5_000, 4_000)]


def test_lanes_can_have_lifetimes_of_their_own() -> None:
    talk = base().sent(0).sent(10, lane="sub")
    changed = parse_edit("ttl:lanes=main").apply(talk.calls)
    found = [prompt_of(call).blocks[-1].marker for call in changed]
    assert [marker.ttl if marker else "" for marker in found] == ["1h", None]


def test_refreshes_bridge_a_long_tool() -> None:
    calls = growing([0, 900, 910])
    added = [c for c in parse_edit("keep-alive").apply(calls) if c.purpose == "keep_alive"]
    assert [call.started_at for call in added] == [270, 540, 810]
    assert saves(calls, "keep-alive") == 8_000 * Decimal("1.15") - 3 * 8_000 * Decimal("0.1")


def test_no_refresh_between_runs_unless_asked() -> None:
    calls = base().sent(0, stop="end_turn").round("a").sent(900).calls
    assert "need a refresh" in refusal(calls, "keep-alive")
    added = [c for c in parse_edit("keep-alive:idle=yes").apply(calls) if c.purpose == "keep_alive"]
    # Three before the second request, then six more until half an hour after the last one.
    assert [call.started_at for call in added] == [
        270,
        540,
        810,
        *(900 + 270 * n for n in range(1, 7)),
    ]


def test_refreshing_ends_after_its_cap() -> None:
    calls = growing([0, 8_000])
    added = [c for c in parse_edit("keep-alive").apply(calls) if c.purpose == "keep_alive"]
    assert added[-1].started_at == 3_510
    assert all((call.started_at or 0) <= 3_600 for call in added)


def test_a_refresh_after_the_lifetime_is_refused() -> None:
    talk = base().sent(0, ttl="1h").round("a").sent(7_000, ttl="1h")
    assert "is gone before it comes" in refusal(talk.calls, "keep-alive:every=3600")


def test_thirteen_refreshes_lose_money_over_an_idle_hour() -> None:
    calls = growing([0, 13 * 270 + 5])
    changed = evaluate(calls, [parse_edit("keep-alive")]).alone[0]
    assert changed.own_costs.added_calls == 13
    assert changed.saves.input_equivalents == 8_000 * (Decimal("1.15") - Decimal("1.30"))


@pytest.mark.parametrize(
    ("write", "read", "most"),
    [
        ("1.25", "0.1", 11),
        ("2", "0.1", 18),
        ("1.25", "0.05", 23),
        ("2", "0.05", 38),
        ("1.25", "1.25", 0),
    ],
)
def test_how_many_refreshes_are_worth_a_write(write: str, read: str, most: int) -> None:
    w, r = Decimal(write), Decimal(read)
    assert pings_worth(w, r) == most
    assert most == 0 or most * r + r < w
    assert (most + 1) * r + r >= w


def test_refreshes_come_a_tenth_before_the_end() -> None:
    assert refresh_after(300) == 270
    assert refresh_after(3600) == 3240


def test_a_refresh_without_tools_renews_nothing_and_stops() -> None:
    calls = growing([0, 900])
    (trial,) = evaluate(calls, [parse_edit("keep-alive:drop=tools+system")]).alone
    # The first one reads nothing; the other two of its series are not sent any more.
    assert trial.own_costs.added_calls == 1
    refresh = next(row for row in trial.outcomes if "~keep" in row.id)
    assert refresh.predicted is not None
    assert refresh.predicted.read == 0
    assert trial.saves.input_equivalents is not None
    assert trial.saves.input_equivalents < 0


def test_a_forced_tool_needs_one_output_token() -> None:
    forced = {"tool_choice": {"type": "tool", "name": "grep"}}
    talk = base().sent(0, body=forced).round("a").sent(400, body=forced)
    added = [c for c in parse_edit("keep-alive").apply(talk.calls) if c.purpose == "keep_alive"]
    assert [c.usage.output for c in added if c.usage is not None] == [1]
    free = [
        c for c in parse_edit("keep-alive").apply(growing([0, 400])) if c.purpose == "keep_alive"
    ]
    assert [c.usage.output for c in free if c.usage is not None] == [0]
