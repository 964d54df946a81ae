"""Public cases of lifetimes and keep-alive (T)."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from cacheaudit.simulate.edits.keep_alive import pings_worth
from tests.unit.cases.recording import (
    MARK,
    Recording,
    anthropic_usage,
    assistant,
    audit,
    body,
    command,
    money,
    simulated,
    text,
    tool,
    user,
)
from tests.unit.cli.helpers import run

DAY = 86_400.0


def days(*lifetimes: str, gap: float = 30.0) -> Recording:
    """A session a day, with the lifetime of that day and one pause each."""
    case = Recording()
    for number, ttl in enumerate(lifetimes):
        start, name = number * DAY, f"day-{number}"
        case.call(start, anthropic_usage(0, 40_000, ttl=ttl), session=name)
        case.call(start + 20, anthropic_usage(40_000, 1_000, ttl=ttl), session=name)
        lost = ttl == "5m" and gap > 300
        usage = anthropic_usage(0, 42_000, ttl=ttl) if lost else (
            anthropic_usage(41_000, 1_000, ttl=ttl)
        )  # fmt: skip
        case.call(start + 20 + gap, usage, session=name)
    return case


def test_t01_one_hour_writes_vanish_on_a_day(tmp_path: Path) -> None:
    case = days("1h", "1h", "1h", "5m", "5m", "5m", gap=600)
    found = audit(tmp_path, case)
    note = found.note("lifetime-changed")
    # The first moment is 2026-10-14: the fourth day is the 17th.
    assert "2026-10-17" in note.said
    assert "126,000 for one hour" in note.said
    assert "249,000 tokens written for five minutes, 0 for one hour" in note.said
    # Rewrites with a gap of 300 to 3,600 s: one a day from then on.
    assert set(found.names) == {"ttl-expired"}
    assert sorted(call for loss in found.losses for call in loss.calls) == [
        "call-12",
        "call-15",
        "call-18",
    ]
    path = case.save(tmp_path)
    usage = command(tmp_path, "usage", str(path), "--by", "day")
    split = {g["key"]: g["totals"]["cache_write"] for g in usage["groups"]}
    assert split["2026-10-16"]["1h"] == 42_000
    assert not split["2026-10-16"]["5m"]
    assert split["2026-10-17"]["5m"] == 83_000
    assert not split["2026-10-17"]["1h"]


@pytest.mark.parametrize(
    ("pauses", "pays"), [(4, True), (1, False)], ids=["many pauses", "one pause"]
)
def test_t03_an_hour_is_recommended_only_where_the_gaps_justify_it(
    tmp_path: Path, pauses: int, pays: bool
) -> None:
    case, at, size = Recording(), 0.0, 60_000
    case.call(at, anthropic_usage(0, size))
    rewritten, other = 0, size
    for number in range(12):
        lost = number < pauses
        at += 900 if lost else 60
        new = 8_000
        usage = anthropic_usage(0 if lost else size, size + new if lost else new)
        case.call(at, usage)
        rewritten += size if lost else 0
        other += new
        size += new
    expected = Decimal("1.15") * rewritten - Decimal("0.75") * other
    assert (expected > 0) == pays
    path = case.save(tmp_path)
    result = command(tmp_path, "backtest", str(path), "--policy", "1h")
    (hour,) = [one for one in result["policies"] if one["policy"] == "1h"]
    assert money(hour["saves"]["input_equivalents"]) == expected
    notes = {note.name: note for note in audit(tmp_path, case).notes}
    assert ("one-hour-lifetime-would-pay" in notes) == pays
    if pays:
        fix = notes["one-hour-lifetime-would-pay"].fix
        assert money(fix["saves_alone"]["input_equivalents"]) == expected


def test_t05_a_refresh_after_expiry_is_refused(tmp_path: Path) -> None:
    case = Recording()
    talk = [user(text("task", 9_000))]
    case.call(0, anthropic_usage(0, 9_000, ttl="1h"), body(talk))
    more = [*talk, assistant(text("a", 500)), user(text("b", 500))]
    case.call(5_000, anthropic_usage(0, 10_000, ttl="1h"), body(more))
    path = str(case.save(tmp_path))
    result = run(
        tmp_path, "simulate", path, "--edit", "ttl:ttl=1h", "--edit", "keep-alive:every=3600"
    )
    assert result.exit_code == 2
    assert "every 3600 s" in result.output
    assert "before the lifetime is over" in result.output


def test_t07_pings_are_worth_eleven_and_eighteen() -> None:
    assert pings_worth(Decimal("1.25"), Decimal("0.1")) == 11
    assert pings_worth(Decimal(2), Decimal("0.1")) == 18


def keep_alive(resumes: bool) -> Recording:
    """A prefix of 100,000 tokens, idle for an hour, refreshed every 270 s on five minutes."""
    talk = [user(text("task", 100_000))]
    case = Recording(model="claude-opus-4-8")
    case.call(0, anthropic_usage(0, 100_000), body(talk))
    for number in range(1, 14):
        case.call(
            270 * number,
            anthropic_usage(100_000, 0, output=0),
            body(talk, max_tokens=0),
            purpose="keep_alive",
        )
    if resumes:
        more = [*talk, assistant(text("a", 500)), user(text("b", 500))]
        case.call(3_600, anthropic_usage(100_000, 1_000), body(more))
    return case


@pytest.mark.parametrize("resumes", [True, False])
def test_t07_thirteen_reads_cost_more_than_one_write(tmp_path: Path, resumes: bool) -> None:
    note = audit(tmp_path, keep_alive(resumes)).note("keep-alive-wasteful")
    # With a resumption a hit spares one write at 1.25 but has to be read: 0.1 x 13 + 0.1 - 1.25.
    wasted = Decimal("0.15") if resumes else Decimal("1.3")
    assert money(note.fix["saves_alone"]["input_equivalents"]) == wasted * 100_000
    assert " 11 " in note.said


def test_t09_a_ping_without_the_tools_refreshes_nothing(tmp_path: Path) -> None:
    tools = (tool("read", 3_000), tool("write", 3_000, **MARK))
    system = (text("You help.", 4_000, **MARK),)
    talk = [user(text("task", 10_000))]
    more = [*talk, assistant(text("a", 500)), user(text("b", 500))]
    think = {"thinking": {"type": "adaptive"}}
    case = Recording()
    case.call(0, anthropic_usage(0, 20_000), body(talk, tools=tools, system=system, **think))
    case.call(
        240,
        anthropic_usage(0, 14_000, output=1),
        body(talk, system=system, max_tokens=1),
        purpose="keep_alive",
    )
    case.call(480, anthropic_usage(0, 21_000), body(more, tools=tools, system=system, **think))
    found = audit(tmp_path, case)
    note = found.note("keep-alive-missed")
    assert (note.calls, note.verdict, note.path) == (["call-2"], "proved", "tools[0]")
    assert "refreshes none of it" in note.said
    # The ping lost what it shares nothing of; the conversation lost its prefix to expiry, not to
    # tools that came back.
    assert found.loss("tools-dropped-on-side-call").calls == ["call-2"]
    loss = found.loss("ttl-expired")
    assert (loss.calls, loss.tokens, loss.verdict) == (["call-3"], 20_000, "proved")
    assert len(found.losses) == 2
    assert found.reads == [0, 0, 0]


def test_t09_from_usage_alone(tmp_path: Path) -> None:
    case = Recording().call(0, anthropic_usage(0, 20_000))
    case.call(240, anthropic_usage(0, 14_000, output=1), purpose="keep_alive")
    case.call(480, anthropic_usage(0, 21_000))
    found = audit(tmp_path, case)
    assert found.note("keep-alive-missed").verdict == "consistent"
    expired = found.loss("ttl-expired")
    assert (expired.calls, expired.tokens, expired.verdict) == (["call-3"], 20_000, "consistent")


def test_t09_a_true_replay_refreshes(tmp_path: Path) -> None:
    tools, system = (tool("read", 6_000, **MARK),), (text("You help.", 4_000, **MARK),)
    talk = [user(text("task", 10_000))]
    more = [*talk, assistant(text("a", 500)), user(text("b", 500))]
    case = Recording()
    case.call(0, anthropic_usage(0, 20_000), body(talk, tools=tools, system=system))
    case.call(
        240,
        anthropic_usage(20_000, 0, output=0),
        body(talk, tools=tools, system=system, max_tokens=0),
        purpose="keep_alive",
    )
    case.call(480, anthropic_usage(20_000, 1_000), body(more, tools=tools, system=system))
    found = audit(tmp_path, case)
    assert found.losses == []
    assert found.reads == [0, 20_000, 20_000]
    assert simulated(tmp_path, case)["accuracy"]["exact_calls"] == 3
