"""The keeper under any order of events: what it may never do, it never does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.attempt import Attempt
from cacheaudit.agent.faults import Faults
from cacheaudit.agent.keep_alive.keeper import Keeper
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.agent.scope import Scope
from cacheaudit.model.call import Call
from cacheaudit.model.clock import FixedClock
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook

START = 1_795_996_800.0
TTL, EVERY = 300.0, 270.0
TOKENS = 60_000
BUDGET = Decimal("0.20")
BODY = json.dumps(
    {
        "model": "claude-opus-5",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "hi"}],
    }
).encode()
READS = {"input_tokens": 1, "cache_read_input_tokens": TOKENS, "cache_creation_input_tokens": 0}
ANSWERS: dict[str, Any] = {
    "fine": {"usage": READS},
    "wrote": {"usage": {**READS, "cache_creation_input_tokens": 5}},
    "nothing": {"usage": {**READS, "cache_read_input_tokens": 0}},
    "silent": {},
    "error": None,
}


class World:
    """A keeper whose threads are this one, and a server that plays an entry's lifetime."""

    def __init__(self, mode: Any) -> None:
        self.clock = FixedClock(START)
        self.sent: list[tuple[float, int, str]] = []  # when, after which request, outcome
        self.real: list[float] = []
        self.answers: list[str] = []
        self.decisions: list[Any] = []
        rules = KeepAlive(mode=mode, min_savings=Decimal(0), budget_per_day=BUDGET)
        self.keeper = Keeper(
            rules,
            PriceBook(),
            self.clock.now,
            Faults(),
            write=self.decisions.extend,
            history=lambda: lambda notes: None,
            start=lambda work: work(),
            wake=lambda: None,
        )

    def send(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], scope: Scope
    ) -> Any:
        assert body["max_tokens"] == 0
        assert scope.purpose == "keep_alive"
        outcome = self.answers.pop(0) if self.answers else "fine"
        self.sent.append((self.clock.now(), len(self.real), outcome))
        if outcome == "error":
            raise OSError
        return ANSWERS[outcome]

    def request(self, stop: str) -> None:
        """Send a real request and let the recorder tell of it."""
        now = self.clock.now()
        self.real.append(now)
        key = f"k{len(self.real)}"
        attempt = Attempt(key, key, 0, "call", Scope("s"), now)
        attempt.body, attempt.url, attempt.sender = BODY, "http://x/v1/messages", self
        self.keeper.sent(attempt)
        self.keeper.learn(
            Call(
                id=key,
                session="s",
                provider="anthropic",
                surface="claude_api",
                model="claude-opus-5",
                started_at=now,
                stop_reason=stop,
                usage=Usage(
                    total_input=TOKENS, uncached_input=0, cache_read=TOKENS, write_5m=0, output=1
                ),
                dedupe_key=f"recorder:{key}",
            )
        )


events = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.sampled_from([1.0, 5.0, 9.0, 30.0, 135.0, 270.0, 400.0])),
        st.tuples(st.just("request"), st.sampled_from(["tool_use", "end_turn"])),
        st.tuples(st.just("answer"), st.sampled_from(sorted(ANSWERS))),
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(events, st.sampled_from(["running", "idle"]))
def test_whatever_happens(steps: list[tuple[str, Any]], mode: str) -> None:
    world = World(mode)
    stops: list[str] = []
    for kind, value in [("request", "tool_use"), *steps]:
        if kind == "pass":
            world.clock.advance(value)
            world.keeper.tick()
        elif kind == "request":
            stops.append(value)
            world.request(value)
        else:
            world.answers.append(value)
    state = world.keeper.state
    assert state.sent == len(world.sent)
    assert state.verified == sum(outcome == "fine" for *_, outcome in world.sent)
    by_request: dict[int, list[tuple[float, str]]] = {}
    for at, after, outcome in world.sent:
        by_request.setdefault(after, []).append((at, outcome))
    for after, pings in by_request.items():
        start = world.real[after - 1]
        if stops[after - 1] == "end_turn":
            assert mode == "idle"
        cap = 3_600 if stops[after - 1] == "tool_use" else 1_800
        last = start
        for number, (at, _) in enumerate(pings):
            assert EVERY <= at - last <= EVERY + (TTL - EVERY) / 2  # in time, or not at all
            assert at - start <= cap + (TTL - EVERY) / 2
            assert number < 11  # eleven reads cost less than one write, twelve do not
            last = at
        # The first failure is the last refresh.
        assert all(outcome == "fine" for _, outcome in pings[:-1])
    days: dict[int, Decimal] = {}
    one = TOKENS * Decimal("0.0000005")
    for at, _, _ in world.sent:
        day = int(at // 86_400)
        days[day] = days.get(day, Decimal(0)) + one
    assert all(spent <= BUDGET for spent in days.values())
    world.keeper.close()
    ended = [d for d in world.decisions if d.kind == "keep_alive_outcome"]
    assert sum(d.details["refreshes"] for d in ended) == len(world.sent)
    assert sum((d.action_price for d in ended), Decimal(0)) == state.spent


def test_what_is_stopped_is_let_go() -> None:
    world = World("running")
    world.request("tool_use")
    world.answers.append("error")
    world.clock.advance(EVERY)
    world.keeper.tick()
    (series,) = world.keeper._series.values()
    assert series.flight.body == b""
    assert series.flight.sender is None
