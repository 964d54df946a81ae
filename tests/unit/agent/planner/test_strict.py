"""With ``strict`` the running total is never above the one without us, whatever comes."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cacheaudit import CacheAudit
from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.errors import ConfigError
from cacheaudit.ingest.endpoints import endpoint_of
from cacheaudit.model.call import CallError
from cacheaudit.model.usage import Usage
from cacheaudit.store import open_store
from tests.unit.agent.planner.bodies import sessions, text
from tests.unit.agent.planner.play import (
    MODEL,
    START,
    URL,
    Cache,
    Played,
    billed,
    call_of,
    outgoing,
    play,
)
from tests.unit.agent.planner.test_sessions import loop
from tests.unit.agent.servers import Reply, Script, client, message

SETTINGS = settings(max_examples=50, deadline=None)
READ, WRITE = Decimal("0.1"), {"5m": Decimal("0.25"), "1h": Decimal(1)}
SURFACE = endpoint_of(URL).surface
PREMIUM = 12_000  # of the first write of a loop of the tests, and more


def strict(credit: int = 0) -> BreakpointPlanner:
    return BreakpointPlanner(PlanPolicy(strict=True, credit=credit, diagnostics=False))


def lost(usage: Usage | None) -> Decimal:
    """Return what a call cost above the same call without markers, in input tokens."""
    assert usage is not None
    extra = WRITE["5m"] * (usage.write_5m or 0) + WRITE["1h"] * (usage.write_1h or 0)
    return extra - (1 - READ) * (usage.cache_read or 0)


def running(planner: BreakpointPlanner, items: Iterable[Played]) -> list[Decimal]:
    """Return how far the total is above the one without us after each request."""
    total, found = Decimal(0), []
    for call in play(planner, items):
        total += lost(call.usage)
        found.append(total)
    return found


@st.composite
def forks(draw: st.DrawFn) -> list[Played]:
    """Several lines at once: branches of one beginning, and lines of their own, in any order."""
    lines = draw(st.lists(sessions(longest=5), min_size=1, max_size=3))
    items: list[Played] = []
    for number, line in enumerate(lines):
        shift = draw(st.sampled_from([0.0, 2.0, 400.0]))
        kept = line[: draw(st.integers(1, len(line)))]
        items += [Played(item.body, item.at + shift, f"line-{number}") for item in kept]
        if draw(st.booleans()):
            branch = copy.deepcopy(line[-1].body)
            branch["messages"].append({"role": "assistant", "content": "so"})
            branch["messages"].append({"role": "user", "content": text(900, number)})
            items.append(Played(branch, line[-1].at + shift + 5, f"branch-{number}"))
    return sorted(items, key=lambda item: item.at)


@SETTINGS
@given(forks(), st.sampled_from([0, 1_000, 10_000, 100_000, 1_000_000]))
def test_the_running_total_is_never_above_the_one_without_us(
    items: list[Played], credit: int
) -> None:
    """After every request, so wherever a program stops; credit is all that is ever at stake."""
    assert max(running(strict(credit), items)) <= credit


@SETTINGS
@given(forks(), st.integers(0, 400_000), st.integers(0, 100_000))
def test_what_earlier_sessions_saved_is_all_that_is_spent(
    items: list[Played], read: int, written: int
) -> None:
    planner = strict()
    planner.credit([("anthropic", SURFACE, MODEL, read, written, 0, START - 86_400)])
    before = lost(Usage(cache_read=read, write_5m=written))
    assert max(running(planner, items)) <= max(Decimal(0), -before)


@SETTINGS
@given(sessions())
def test_without_anything_saved_nothing_is_written(items: list[Played]) -> None:
    assert set(running(strict(), items)) == {Decimal(0)}
    assert all(item.sent is item.body for item in items)


def test_with_credit_a_loop_saves_what_it_saves_without_the_law() -> None:
    usual = running(BreakpointPlanner(), loop(12))[-1]
    found = running(strict(PREMIUM), loop(12))
    assert found[0] > 0  # the first write is paid ahead
    assert found[-1] == usual < 0


def test_what_was_saved_pays_for_the_next_session() -> None:
    """The first conversation is paid for by what an earlier program saved, the second by both."""
    planner = strict()
    planner.credit([("anthropic", SURFACE, MODEL, 20_000, 0, 0, START - 86_400)])
    first = running(planner, loop(6))
    assert 0 < first[0] <= 18_000
    assert first[-1] < 0
    later = loop(3)
    for item in later:
        item.at += 90_000.0
        item.lane = "another"
    again = running(planner, later)
    assert again[0] > 0 > again[-1]


def test_requests_on_their_way_count_as_if_nothing_of_them_were_read() -> None:
    """Two at once: the credit pays for one write, so one of them is sent without markers."""
    items = []
    for number in range(2):
        (item,) = loop(0)
        item.body["messages"] = [{"role": "user", "content": text(9_000, number)}]
        item.body["system"], item.lane = text(9_000, number + 5), f"l{number}"
        items.append(item)
    sent = running(strict(6_000), items)
    assert ["cache_control" in str(item.sent) for item in items] == [True, False]
    assert sent == [sent[0], sent[0]]
    assert 0 < sent[0] <= 6_000


def test_a_refused_attempt_keeps_its_share_until_it_is_given_up() -> None:
    def refused(status: int | None) -> bool:
        """Whether another line can be paid for after an attempt failed."""
        planner, (item,) = strict(6_000), loop(0)
        item.sent = planner.plan(outgoing(item.body, 0, item.at, lane="a")) or {}
        call = call_of(0, item, item.sent)
        planner.learn(replace(call, error=CallError("x", status)))
        return planner.plan(outgoing(item.body, 1, item.at + 1, lane="b")) is not None

    assert refused(400)  # it cost nothing and will not come again
    assert not refused(529)  # the SDK sends it once more
    assert not refused(None)  # nobody knows whether the server counted it

    planner, (item,) = strict(6_000), loop(0)
    item.sent = planner.plan(outgoing(item.body, 0, item.at, lane="a")) or {}
    call = call_of(0, item, item.sent)
    planner.learn(replace(call, error=CallError("x", 529)))
    outcome = billed(Cache().step(call))
    planner.learn(replace(call, attempt=1, usage=outcome, extra={"logical_call": "call-0"}))
    pool = next(iter(planner._pools._pools.values()))
    assert (pool.reserved, pool.balance) == (0, 6_000 - lost(outcome))


def test_a_line_that_goes_on_gives_up_what_failed() -> None:
    planner, (item,) = strict(6_000), loop(0)
    item.sent = planner.plan(outgoing(item.body, 0, item.at, lane="a")) or {}
    planner.learn(replace(call_of(0, item, item.sent), error=CallError("x", 529)))
    assert planner.plan(outgoing(item.body, 1, item.at + 1, lane="b")) is None
    assert planner.plan(outgoing(item.body, 2, item.at + 2, lane="a")) is not None


def test_completing_never_spends_what_was_not_saved() -> None:
    items = loop(4)
    for item in items:
        item.body["system"] = [
            {"type": "text", "text": item.body["system"], "cache_control": {"type": "ephemeral"}}
        ]
    planner = BreakpointPlanner(PlanPolicy(strict=True, complete=True, diagnostics=False))
    play(planner, items)
    assert all(item.sent is item.body for item in items)
    assert any("nothing saved so far" in line for line in planner.report("s"))


@pytest.mark.parametrize("credit", [-1, -100])
def test_a_credit_is_a_number_of_tokens(credit: int) -> None:
    with pytest.raises(ConfigError, match="credit"):
        PlanPolicy(strict=True, credit=credit)


# ── across programs ──────────────────────────────────────────────────────────────────────────────


def program(db: Path, *, policy: PlanPolicy, read: int, written: int, own: bool = False) -> int:
    """Run a program of two calls; returns how many of them carried markers."""
    script = Script(*[Reply(usage_of(read, written))] * 2)
    ask: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": 9,
        "system": [{"type": "text", "text": text(9_000, 1)}],
        "messages": [{"role": "user", "content": "hello"}],
    }
    if own:
        ask["system"][0]["cache_control"] = {"type": "ephemeral"}
    with CacheAudit(db, policy=policy) as audit, audit.session("s"):
        wrapped = audit.wrap(client(script))
        for _ in range(2):
            wrapped.messages.create(**ask)
            assert audit.flush()
        assert audit.state.faults == {}
    return sum(b"cache_control" in body for body in script.sent)


def usage_of(read: int, written: int) -> dict[str, Any]:
    made = message()
    made["usage"] = {
        "input_tokens": 20,
        "output_tokens": 3,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
    }
    return made


LAW = PlanPolicy(strict=True)


def test_the_store_gives_the_credit(tmp_path: Path) -> None:
    """It is read when the first call is written; the second one may be marked."""
    db = tmp_path / "usage.db"
    assert program(db, policy=LAW, read=0, written=0) == 0
    assert program(db, policy=PlanPolicy(), read=9_000, written=100) == 2
    with open_store(str(db)) as store:
        (row,) = store.marked_totals("recorder")
    assert row[2:6] == (MODEL, 18_000, 200, 0)
    assert program(db, policy=LAW, read=0, written=2_500) == 1


def test_markers_of_the_callers_give_none(tmp_path: Path) -> None:
    db = tmp_path / "usage.db"
    program(db, policy=PlanPolicy(), read=9_000, written=100, own=True)
    with open_store(str(db)) as store:
        assert store.marked_totals("recorder") == []
    assert program(db, policy=LAW, read=0, written=0) == 0
