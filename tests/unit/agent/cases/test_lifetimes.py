"""Public reports of lifetimes and keep-alive: prevented, or refused before money is spent."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from cacheaudit.agent.keep_alive.economy import Ineligible, stakes
from cacheaudit.agent.keep_alive.gaps import Gaps
from cacheaudit.agent.keep_alive.policy import Decision, Situation, decide
from cacheaudit.agent.keep_alive.replay import Replay, replay
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.errors import ConfigError
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.providers.registry import expand
from tests.unit.agent.cases.helpers import MARK, loop, planned
from tests.unit.agent.planner.play import call_of, input_cost, outgoing


def test_t01_lifetimes_that_a_client_stops_to_ask_for_are_asked_for_where_pauses_say_so() -> None:
    """Pauses of ten minutes: after the first ones the front and the talk are kept for an hour."""
    items = loop(14, gap=600.0)
    calls, report = planned(items)
    assert all(call.usage and call.usage.write_1h for call in calls[-5:])
    assert "kept for 1h" in report
    short, _ = planned(loop(14, gap=600.0), ttl="5m")
    assert input_cost(calls) < input_cost(short)


def test_t03_an_hour_is_not_bought_where_pauses_are_short() -> None:
    calls, _ = planned(loop(14, gap=30.0))
    assert all(call.usage and not call.usage.write_1h for call in calls)
    longer, _ = planned(loop(14, gap=30.0), ttl="1h")
    assert input_cost(calls) < input_cost(longer)


@pytest.mark.parametrize(
    ("ttl", "after", "fits"),
    [("1h", 3_600.0, False), ("1h", 3_240.0, True), ("5m", 600.0, False), ("5m", 300.0, False)],
)
def test_t05_a_refresh_behind_the_end_of_the_lifetime_is_never_sent(
    ttl: str, after: float, fits: bool
) -> None:
    found = at_stake(ttl, after)
    if fits:
        assert not isinstance(found, Ineligible)
    else:
        assert found == Ineligible("refresh_beyond_lifetime")


def test_t05_longer_than_any_lifetime_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="Give fewer seconds than the lifetime"):
        KeepAlive(mode="idle", refresh_after=43_200.0)


def at_stake(ttl: str, after: float | None = None) -> Any:
    (item,) = loop(0)
    body = item.body
    body["messages"][0]["content"] = [
        {"type": "text", "text": "go", "cache_control": {**MARK, "ttl": ttl}}
    ]
    body["system"][0]["text"] *= 40
    size = 60_000
    usage = Usage(
        uncached_input=0,
        cache_read=0,
        total_input=size,
        output=1,
        write_5m=size if ttl == "5m" else 0,
        write_1h=size if ttl == "1h" else 0,
    )
    call = msgspec.structs.replace(
        call_of(0, item, body), usage=usage, prompt=expand(body, provider="anthropic")
    )
    return stakes(call, body, PriceBook(), every=after)


@pytest.mark.parametrize(("ttl", "most"), [("5m", 11), ("1h", 18)])
def test_t07_refreshes_together_never_cost_more_than_one_write(ttl: str, most: int) -> None:
    known = at_stake(ttl)
    assert known.affordable == most
    settings = KeepAlive(
        mode="idle", min_savings=Decimal(0), idle_cap=1e9, running_cap=1e9, budget_per_day=None
    )
    sent = [number for number in range(40) if decision(known, number, settings).action == "warm"]
    assert sent == list(range(most))
    # They and the read of the request that comes back; one more would not be cheaper.
    assert (most + 1) * known.read < known.write <= (most + 2) * known.read


def decision(known: Any, number: int, settings: KeepAlive) -> Decision:
    """What is decided where the request surely comes back right after the next lifetime."""
    gaps = Gaps(0.0, weight=0.0)
    gaps.add(known.every * number + known.ttl + 1)
    at = Situation(
        stakes=known,
        phase="idle",
        elapsed=known.every * (number + 1),
        lives_until=known.every * number + known.ttl,
        refreshes=number,
    )
    return decide(at, settings, gaps)


def test_t09_a_refresh_shares_the_whole_prefix_tools_and_thinking_too() -> None:
    body = {**loop(3)[3].body, "thinking": {"type": "adaptive"}, "stream": True}
    planner = BreakpointPlanner()
    sent = planner.plan(outgoing(body))
    made = replay(dict(sent or body))
    assert isinstance(made, Replay)
    one, two = (expand(b, provider="anthropic") for b in (dict(sent or body), made.body))
    assert two.prefix_digests == one.prefix_digests
    assert two.parameters == one.parameters
    assert two.marked == one.marked != ()
