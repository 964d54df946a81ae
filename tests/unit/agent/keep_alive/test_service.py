"""Refreshes that are really sent, by the real SDK, against a scripted server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cacheaudit import CacheAudit
from cacheaudit.agent.keep_alive.policy import Decision
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.model.clock import FixedClock
from cacheaudit.store import open_store
from tests.unit.agent import servers
from tests.unit.agent.servers import Reply, Script, message, usage

START = 1_795_996_800.0
REFRESHED = {**usage(60_300, 0, 0, 0), "input_tokens": 0}
BODY: dict[str, Any] = {
    "model": servers.MODEL,
    "max_tokens": 1024,
    "system": [
        {
            "type": "text",
            "text": "word " * 40_000,
            "cache_control": {"type": "ephemeral"},
        }
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}},
            ],
        }
    ],
}


def answered(number: int = 1, stop: str = "tool_use", **more: Any) -> Reply:
    return Reply(message(number, stop_reason=stop, usage=usage(60_000, 300, 0), **more))


def refreshed(**more: Any) -> Reply:
    return Reply(message(90, stop_reason="max_tokens", usage={**REFRESHED, **more}))


class World:
    """An audit with keep-alive, a clock that stands still, and a way to wait for its threads."""

    def __init__(self, folder: Path, settings: Any, start: float) -> None:
        self.clock = FixedClock(start)
        self.db = folder / "usage.db"
        self.audit = CacheAudit(self.db, "observe", keep_alive=settings, clock=self.clock)

    def pass_time(self, seconds: float) -> None:
        """Move the clock and let the timer see it; returns when nothing is on its way."""
        assert self.audit.flush()
        self.clock.advance(seconds)
        service = self.audit._refreshes
        assert service is not None
        service.keeper.tick()
        self.settle()

    def settle(self) -> None:
        service = self.audit._refreshes
        assert service is not None
        deadline = time.monotonic() + 20
        while any(s.busy for s in list(service.keeper._series.values())):
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def decisions(self, kind: str) -> list[Any]:
        self.audit.close()
        with open_store(str(self.db)) as store:
            return [found for found in store.decisions() if found.kind == kind]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(settings: Any = "idle", start: float = START) -> World:
        made.append(World(tmp_path, settings, start))
        return made[-1]

    yield make
    for one in made:
        assert one.audit.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("cacheaudit")]


def test_a_refresh_is_the_request_with_nothing_to_generate(world: Callable[..., World]) -> None:
    w, script = world("running"), Script(answered(), refreshed(), answered(2))
    client = w.audit.wrap(servers.client(script))
    with w.audit.session("s", task="t"):
        client.messages.create(**BODY)
        w.pass_time(269)
        assert len(script.sent) == 1
        w.pass_time(1)
        first, second = map(json.loads, script.sent)
        assert second == {**first, "max_tokens": 0}
        # The next request comes 335 s after the first, 35 s after its entry would have expired.
        w.pass_time(65)
        client.messages.create(**BODY)
    state = w.audit.keep_alive
    assert state is not None
    assert (state.sent, state.verified) == (1, 1)
    calls = w.audit.sessions(["s"])[0].calls
    assert [(c.purpose, c.session, c.lane, c.task) for c in calls] == [
        ("main", "s", "main", "t"),
        ("keep_alive", "s", "main", "t"),
        ("main", "s", "main", "t"),
    ]
    (decided,) = w.decisions("keep_alive")
    assert decided.action == "warm"
    assert decided.action_price == 60_300 * Decimal("0.0000005")
    assert decided.details["miss_cost"] == str(60_300 * Decimal("0.00000575"))
    (sent,) = w.decisions("keep_alive_refresh")
    assert (sent.action, sent.action_price) == ("verified", 60_300 * Decimal("0.0000005"))
    (ended,) = [d for d in w.decisions("keep_alive_outcome") if d.action == "returned"]
    assert ended.action_price == 60_300 * Decimal("0.0000005")
    assert ended.alternative_price == 60_000 * Decimal("0.00000575")
    assert Decimal(ended.details["gain"]) == ended.alternative_price - ended.action_price


def test_the_clock_runs_from_the_start_of_each_request(world: Callable[..., World]) -> None:
    w, script = world("running"), Script(answered(), refreshed(), refreshed())
    client = w.audit.wrap(servers.client(script))
    client.messages.create(**BODY)
    w.pass_time(275)  # 5 s late
    w.pass_time(269)
    assert len(script.sent) == 2
    w.pass_time(1)
    assert len(script.sent) == 3


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (refreshed(cache_creation_input_tokens=5), "wrote"),
        (refreshed(cache_read_input_tokens=0), "read_nothing"),
        (Reply(message(9, usage={"input_tokens": 3, "output_tokens": 0})), "unverified"),
        (Reply({"type": "error", "error": {"type": "overloaded_error"}}, status=529), "failed"),
        (Reply({"type": "error", "error": {"type": "rate_limit_error"}}, status=429), "failed"),
    ],
)
def test_the_first_failure_ends_the_series(
    world: Callable[..., World], reply: Reply, reason: str
) -> None:
    w, script = world("running"), Script(answered(), reply)
    client = w.audit.wrap(servers.client(script))
    client.messages.create(**BODY)
    w.pass_time(270)
    w.pass_time(270)
    assert len(script.sent) == 2  # not even a retry
    state = w.audit.keep_alive
    assert state is not None
    assert state.stopped == {reason: 1}
    assert state.verified == 0


def test_a_missed_window_is_not_made_up_for(world: Callable[..., World]) -> None:
    w, script = world("running"), Script(answered())
    w.audit.wrap(servers.client(script)).messages.create(**BODY)
    w.pass_time(290)
    assert len(script.sent) == 1
    (decided,) = w.decisions("keep_alive")
    assert (decided.action, decided.details["reason"]) == ("stop", "late")


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"tool_choice": {"type": "any"}}, 1),
        ({"tool_choice": {"type": "tool", "name": "f"}}, 1),
        ({"tool_choice": {"type": "auto"}}, 0),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, 1),
        ({"thinking": {"type": "adaptive"}}, 0),
    ],
)
def test_the_output_limit_is_what_the_provider_takes(
    world: Callable[..., World], changes: dict[str, Any], limit: int
) -> None:
    w, script = world("running"), Script(answered(), refreshed())
    w.audit.wrap(servers.client(script)).messages.create(
        **BODY, extra_body={**changes, "tools": [{"name": "f", "input_schema": {}}]}
    )
    w.pass_time(270)
    first, second = map(json.loads, script.sent)
    assert second == {**first, "max_tokens": limit}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking_budget"),
        ({"thread": {"type": "create"}}, "thread"),
        ({"container": "c1"}, "container"),
        ({"system": "short", "messages": [{"role": "user", "content": "hi"}]}, "no_marker"),
        ({"model": "claude-unheard-of-9"}, "price_unknown"),
    ],
)
def test_what_cannot_be_repeated_safely_is_left_alone(
    world: Callable[..., World], changes: dict[str, Any], reason: str
) -> None:
    w = world("running")
    script = Script(answered(model=changes.get("model", servers.MODEL)))
    w.audit.wrap(servers.client(script)).messages.create(**BODY, extra_body=changes)
    w.pass_time(270)
    assert len(script.sent) == 1
    state = w.audit.keep_alive
    assert state is not None
    assert state.stopped == {reason: 1}


def test_streams_are_repeated_without_streaming(world: Callable[..., World]) -> None:
    stream = servers.events(1, stop_reason="tool_use", usage=usage(60_000, 300, 0))
    w, script = world("running"), Script(Reply(frames=stream), refreshed())
    client = w.audit.wrap(servers.client(script))
    with client.messages.stream(**BODY) as events:
        for _ in events:
            pass
    w.pass_time(270)
    first, second = map(json.loads, script.sent)
    assert first.pop("stream") is True
    assert second == {**first, "max_tokens": 0}


def test_between_runs_only_where_it_was_asked_for(world: Callable[..., World]) -> None:
    w, script = world("running"), Script(answered(stop="end_turn"))
    w.audit.wrap(servers.client(script)).messages.create(**BODY)
    w.pass_time(270)
    assert len(script.sent) == 1


def test_the_end_of_a_session_ends_what_runs(world: Callable[..., World]) -> None:
    w, script = world("running"), Script(answered())
    client = w.audit.wrap(servers.client(script))
    with w.audit.session("s"):
        client.messages.create(**BODY)
        with w.audit.purpose("other"):
            pass
        assert w.audit.flush()
        assert w.audit.keep_alive is not None
        assert w.audit.keep_alive.stopped == {}
    w.pass_time(270)
    assert len(script.sent) == 1
    assert w.audit.keep_alive.stopped == {"settled": 1}


def test_the_hook_has_the_last_word(world: Callable[..., World]) -> None:
    asked: list[Decision] = []

    def hook(found: Decision) -> str:
        asked.append(found)
        return "stop"

    w = world(KeepAlive(mode="running", on_decision=hook))
    script = Script(answered())
    with w.audit.session("s"):
        w.audit.wrap(servers.client(script)).messages.create(**BODY)
        w.pass_time(270)
    assert len(script.sent) == 1
    assert [(d.action, d.session, d.lane) for d in asked] == [("warm", "s", "main")]
    (decided,) = w.decisions("keep_alive")
    assert (decided.action, decided.details["reason"]) == ("stop", "vetoed")


def test_a_hook_that_fails_changes_nothing(world: Callable[..., World]) -> None:
    def hook(_: Decision) -> str:
        raise ValueError("mine")

    w = world(KeepAlive(mode="running", on_decision=hook))
    script = Script(answered(), refreshed())
    w.audit.wrap(servers.client(script)).messages.create(**BODY)
    w.pass_time(270)
    assert len(script.sent) == 2
    assert w.audit.state.faults == {"on_decision:ValueError": 1}


def test_asynchronous_clients(world: Callable[..., World]) -> None:
    w, script = world("running"), Script(answered(), refreshed())

    async def main() -> None:
        client = w.audit.wrap(servers.async_client(script))
        async with w.audit.session("s"):
            await client.messages.create(**BODY)
            await asyncio.to_thread(w.pass_time, 270)
        await client.close()

    asyncio.run(main())
    first, second = map(json.loads, script.sent)
    assert second == {**first, "max_tokens": 0}
    calls = w.audit.sessions(["s"])[0].calls
    assert [c.purpose for c in calls] == ["main", "keep_alive"]


def test_an_event_loop_that_is_gone_is_no_trouble(world: Callable[..., World]) -> None:
    w, script = world("running"), Script(answered())

    async def main() -> None:
        client = w.audit.wrap(servers.async_client(script))
        await client.messages.create(**BODY)
        await client.close()

    asyncio.run(main())
    w.pass_time(270)
    assert len(script.sent) == 1
    assert w.audit.keep_alive is not None
    assert w.audit.keep_alive.stopped == {"failed": 1}


def test_pauses_and_money_are_remembered(world: Callable[..., World]) -> None:
    w = world("running")
    script = Script(answered(), refreshed(), answered(2))
    client = w.audit.wrap(servers.client(script))
    with w.audit.session("s"):
        client.messages.create(**BODY)
        w.pass_time(270)
        w.pass_time(100)
        client.messages.create(**BODY)
    spent = w.audit.keep_alive.spent if w.audit.keep_alive else None
    w.audit.close()
    later, script = world("running", START + 10_000), Script(answered(), refreshed())
    later.audit.wrap(servers.client(script)).messages.create(**BODY)
    later.pass_time(270)
    service = later.audit._refreshes
    assert service is not None
    notes = service.keeper.notes
    assert notes.gaps["running"]._ended == [370.0]
    assert notes.gaps["running"]._open == [10_270.0 - 370.0]
    assert spent == 60_300 * Decimal("0.0000005")
    assert notes.spent_on(later.clock.now()) == 2 * spent


def test_off_means_off(tmp_path: Path) -> None:
    with CacheAudit(tmp_path / "a.db", "observe") as audit:
        script = Script(answered())
        audit.wrap(servers.client(script)).messages.create(**BODY)
        assert audit.flush()
        assert audit.keep_alive is None
        names = {t.name for t in threading.enumerate()}
        assert "cacheaudit-keep-alive" not in names
