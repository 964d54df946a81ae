"""Plays sessions through the planner and through the simulator."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cacheaudit.agent.plan import Outgoing
from cacheaudit.agent.planner.planner import BreakpointPlanner
from cacheaudit.agent.scope import Scope
from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.providers.registry import expand
from cacheaudit.simulate.build import Builder
from cacheaudit.simulate.machine import kind
from cacheaudit.simulate.request import Outcome
from cacheaudit.simulate.run import run
from cacheaudit.simulate.switches import Switches

URL = "https://api.example.org/v1/messages"
MODEL = "claude-opus-5"
START = 1_795_000_000.0
ROOT = Path(__file__).parents[4]


def outgoing(
    body: Mapping[str, Any],
    number: int = 0,
    at: float = START,
    *,
    session: str | None = "s",
    lane: str | None = None,
    url: str = URL,
) -> Outgoing:
    return Outgoing(body, url, Scope(session, lane), f"call-{number}", at)


class Played:
    """One request of a session: what was given, and what is sent."""

    def __init__(
        self,
        body: dict[str, Any],
        at: float,
        lane: str | None = None,
        tokens: Sequence[int] | None = None,
    ) -> None:
        self.body = body
        self.at = at
        self.lane = lane
        self.tokens = tokens
        self.sent: Mapping[str, Any] = body


class Cache:
    """The simulator, one call at a time."""

    def __init__(self) -> None:
        self._builder = Builder(Switches())
        self._machine = kind("claude").make()

    def step(self, call: Call) -> Outcome:
        built = self._builder.build(call)
        rules = kind("claude").rules(built.rules, Switches())  # type: ignore[union-attr]
        return self._machine.step(built.request, rules)  # type: ignore[union-attr]


def call_of(number: int, item: Played, sent: Mapping[str, Any], duration: float = 2.0) -> Call:
    prompt = expand(sent, provider="anthropic")
    if item.tokens is not None:
        prompt = with_tokens(prompt, item.tokens)
    return Call(
        id=f"msg_{number}",
        session="s",
        lane=item.lane or "main",
        provider="anthropic",
        surface="claude_api",
        model=str(item.body["model"]),
        started_at=item.at,
        first_token_at=item.at + min(1.0, duration),
        ended_at=item.at + duration,
        prompt=prompt,
        dedupe_key=f"recorder:call-{number}",
    )


def with_tokens(prompt: Prompt, tokens: Sequence[int]) -> Prompt:
    blocks = tuple(
        replace(block, tokens=count, tokens_origin="recorded")
        for block, count in zip(prompt.blocks, tokens, strict=True)
    )
    return replace(prompt, blocks=blocks)


def billed(outcome: Outcome) -> Usage:
    return Usage(
        uncached_input=outcome.uncached,
        cache_read=outcome.read,
        write_5m=outcome.writes.get("5m", 0),
        write_1h=outcome.writes.get("1h", 0),
        output=10,
        total_input=outcome.uncached + outcome.read + outcome.written,
    )


def play(planner: BreakpointPlanner, items: Iterable[Played]) -> list[Call]:
    """Send a session through the planner, which learns what the simulator bills.

    Requests of one moment are all sent before the first of them is answered.
    """
    cache = Cache()
    made: list[Call] = []
    waiting: list[Call] = []
    for number, item in enumerate(items):
        if waiting and waiting[-1].started_at != item.at:
            for call in waiting:
                planner.learn(call)
            waiting = []
        planned = planner.plan(outgoing(item.body, number, item.at, lane=item.lane))
        item.sent = item.body if planned is None else planned
        call = call_of(number, item, item.sent)
        outcome = cache.step(call)
        assert outcome.refused is None, outcome.refused
        waiting.append(replace(call, usage=billed(outcome)))
        made.append(waiting[-1])
    for call in waiting:
        planner.learn(call)
    return made


def input_cost(calls: Iterable[Call]) -> Decimal:
    """Return what the simulator bills for input, in ordinary input tokens."""
    result = run([replace(call, usage=None) for call in calls], PriceBook())
    amount = result.totals.input_equivalents
    assert amount is not None
    return amount


def rows(calls: Sequence[Call]) -> list[tuple[int, int]]:
    return [(c.usage.cache_write or 0, c.usage.cache_read or 0) for c in calls if c.usage]


def stripped(value: Any) -> Any:
    """Return a body without markers, and with lists of one plain text block as text."""
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], dict) and value[0].get("type") == "text":
            left = {k: v for k, v in value[0].items() if k != "cache_control"}
            if left.keys() == {"type", "text"}:
                return left["text"]
        return [stripped(item) for item in value]
    if isinstance(value, dict):
        return {k: stripped(v) for k, v in value.items() if k != "cache_control"}
    return value


def unmarked(value: Any) -> Any:
    """Return a value without markers, whatever its form otherwise."""
    if isinstance(value, list):
        return [unmarked(item) for item in value]
    if isinstance(value, dict):
        return {k: unmarked(v) for k, v in value.items() if k != "cache_control"}
    return value


def exercise() -> list[Played]:
    """The session of fourteen requests, with its own markers."""
    path = ROOT / "fixtures" / "sessions" / "exercise-14.session.jsonl"
    items = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        at = dt.datetime.fromisoformat(row["started_at"]).timestamp()
        lane = row["lane"]
        items.append(Played(row["request"], at, lane, row["content_tokens"]))
    return items
