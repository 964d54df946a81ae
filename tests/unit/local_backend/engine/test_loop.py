"""The thread that owns an engine, seen from other threads and from coroutines."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from local_backend.engine.api import (  # noqa: E402
    EngineStats,
    Event,
    Finished,
    FinishReason,
    Piece,
    Started,
)
from local_backend.engine.build import build_engine  # noqa: E402
from local_backend.engine.config import EngineConfig  # noqa: E402
from local_backend.engine.core import Engine  # noqa: E402
from local_backend.engine.loop import EngineLoop  # noqa: E402
from local_backend.errors import (  # noqa: E402
    CacheIntegrityError,
    CacheStateError,
    EngineBusyError,
    EngineClosedError,
    EngineRequestError,
    RequestTooLargeError,
)
from local_backend.models.tiny import tiny_decoder  # noqa: E402
from tests.unit.local_backend.engine.driving import (  # noqa: E402
    TOKENIZER,
    Answer,
    ask,
    check_answer,
    drive,
)
from tests.unit.local_backend.models.running import draw  # noqa: E402

PATIENCE_S = 60


class Gate:
    """The little decoder; a pass begins only while the gate is open."""

    def __init__(self) -> None:
        self._model = tiny_decoder()
        self.open = threading.Event()
        self.entered = threading.Event()
        self.fault: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, context: Any) -> Any:
        self.entered.set()
        assert self.open.wait(PATIENCE_S)
        if self.fault is not None:
            raise self.fault
        return self._model.forward(context)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def loop(gate: Gate) -> Iterator[EngineLoop]:
    config = EngineConfig(pages=64, max_running=4, max_waiting=4)
    found = EngineLoop(build_engine(gate, TOKENIZER, config))  # type: ignore[arg-type]
    found.start()
    yield found
    gate.open.set()
    found.close()


def await_stats(loop: EngineLoop, wanted: Any) -> EngineStats:
    for _ in range(PATIENCE_S * 1000):
        if wanted(stats := loop.stats()):
            return stats
        time.sleep(0.001)
    raise AssertionError("that never came about")


def is_clean(stats: EngineStats) -> bool:
    idle = all(pool.protected == 0 for pool in stats.pools.values())
    return idle and stats.running == stats.waiting == 0


def test_many_threads_get_what_they_would_get_alone(gate: Gate, loop: EngineLoop) -> None:
    gate.open.set()
    stem = draw(40, 1)
    requests = [ask(f"r{i}", [*stem, i], 6) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda request: Answer(list(loop.submit(request))), requests))
    for request, answer in zip(requests, answers, strict=True):
        answer.check_order()
        check_answer(tiny_decoder(), request, answer)
    loop.check_integrity()
    assert await_stats(loop, is_clean).finished == {"length": 4}
    assert loop.reset_cache() > 0


def test_coroutines_get_the_same(gate: Gate, loop: EngineLoop) -> None:
    gate.open.set()
    requests = [ask(f"r{i}", draw(40, i), 6) for i in range(4)]

    async def read(index: int) -> list[Event]:
        return [event async for event in loop.submit(requests[index])]

    async def read_all() -> list[list[Event]]:
        return await asyncio.gather(*(read(index) for index in range(4)))

    for request, events in zip(requests, asyncio.run(read_all()), strict=True):
        Answer(events).check_order()
        check_answer(tiny_decoder(), request, Answer(events))


def test_events_come_as_they_happen(gate: Gate, loop: EngineLoop) -> None:
    """The first ones are there while the answer is still being computed."""
    handle = loop.submit(ask("a", draw(20, 1), 30))
    gate.open.set()
    events = iter(handle)
    assert isinstance(next(events), Started)
    assert isinstance(next(events), Piece)
    # An iteration that was left goes on where it stopped.
    events.close()  # type: ignore[attr-defined]
    rest = list(handle)
    assert len(rest) == 30
    assert isinstance(rest[-1], Finished)
    assert handle.is_finished
    assert list(handle) == []


def test_cancelled_while_running_and_while_waiting(gate: Gate, loop: EngineLoop) -> None:
    first = loop.submit(ask("first", draw(20, 1), 1000))
    assert gate.entered.wait(PATIENCE_S)
    second = loop.submit(ask("second", draw(20, 2), 1000))
    second.cancel()
    gate.open.set()
    assert list(second)[-1] == Finished(
        name="second", reason=FinishReason.CANCELLED, text="", output_tokens=0
    )
    events = iter(first)
    next(events)
    first.cancel()
    first.cancel()
    *_, last = events
    assert isinstance(last, Finished)
    assert last.reason is FinishReason.CANCELLED
    first.cancel()  # nothing to do any more
    await_stats(loop, is_clean)


def test_leaving_a_with_block_cancels(gate: Gate, loop: EngineLoop) -> None:
    gate.open.set()
    with loop.submit(ask("a", draw(20, 1), 10_000)) as handle:
        assert isinstance(next(iter(handle)), Started)
    assert await_stats(loop, is_clean).finished == {"cancelled": 1}


def test_a_reader_whose_event_loop_is_gone_harms_nobody(gate: Gate, loop: EngineLoop) -> None:
    async def begin() -> Any:
        events = aiter(loop.submit(ask("a", draw(20, 1), 50)))
        reading = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        return events, reading

    own = asyncio.new_event_loop()
    _, reading = own.run_until_complete(begin())
    reading.cancel()
    own.run_until_complete(asyncio.gather(reading, return_exceptions=True))
    own.run_until_complete(own.shutdown_asyncgens())
    own.close()
    gate.open.set()
    assert len(list(loop.submit(ask("b", draw(20, 3), 3)))) == 5
    assert await_stats(loop, is_clean).finished == {"length": 2}


def test_too_many_are_turned_away_at_once(gate: Gate, loop: EngineLoop) -> None:
    handles = [loop.submit(ask(f"r{i}", draw(20, i), 1)) for i in range(8)]
    with pytest.raises(EngineBusyError, match="8 requests"):
        loop.submit(ask("r8", draw(20, 8), 1))
    assert loop.stats().refused == 1
    gate.open.set()
    for handle in handles:
        assert isinstance(list(handle)[-1], Finished)
    assert isinstance(list(loop.submit(ask("r8", draw(20, 8), 1)))[-1], Finished)


def test_bad_requests_are_refused_where_they_are_submitted(gate: Gate, loop: EngineLoop) -> None:
    with pytest.raises(EngineRequestError, match="no tokens"):
        loop.submit(ask("a", ()))
    with pytest.raises(RequestTooLargeError):
        loop.submit(ask("a", draw(2000, 1)))
    loop.submit(ask("a", draw(20, 1), 900))
    with pytest.raises(CacheStateError, match="live already"):
        loop.submit(ask("a", (2,)))
    gate.open.set()
    with pytest.raises(CacheStateError, match="1 requests are live"):
        loop.reset_cache()


def test_a_pass_that_fails_ends_its_requests_only(gate: Gate, loop: EngineLoop) -> None:
    gate.fault = RuntimeError("out of luck")
    gate.open.set()
    events = list(loop.submit(ask("a", draw(20, 1), 5)))
    assert events == [
        Finished(
            name="a",
            reason=FinishReason.FAILED,
            text="",
            output_tokens=0,
            error="RuntimeError: out of luck",
        )
    ]
    gate.fault = None
    request = ask("b", draw(20, 1), 5)
    answer = Answer(list(loop.submit(request)))
    check_answer(tiny_decoder(), request, answer)
    assert await_stats(loop, is_clean).finished == {"failed": 1, "length": 1}


class Broken(Engine):
    """An engine whose steps fail outside the model, for a while or for good."""

    is_broken = False
    is_hopeless = False
    calls = 0

    def step(self) -> list[Event]:
        self.calls += 1
        if self.is_broken and self.live:
            self.is_broken = False
            raise CacheIntegrityError("the books are wrong")
        return super().step()

    def fail_all(self, error: Exception) -> list[Event]:
        if self.is_hopeless:
            raise CacheIntegrityError("and cannot be put right")
        return super().fail_all(error)


def broken() -> Broken:
    whole = drive().engine
    return Broken(whole.model, TOKENIZER, whole.config, whole.manager, whole._passes._memory)


def test_a_step_that_fails_ends_all_and_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    engine = broken()
    loop = EngineLoop(engine)
    loop.start()
    engine.is_broken = True
    with caplog.at_level(logging.CRITICAL + 1):
        (last,) = list(loop.submit(ask("a", draw(20, 1), 5)))
    assert isinstance(last, Finished)
    assert last.error == "CacheIntegrityError: the books are wrong"
    assert len(list(loop.submit(ask("b", draw(20, 1), 5)))) == 7
    loop.check_integrity()
    loop.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_an_engine_that_ended(caplog: pytest.LogCaptureFixture) -> None:
    engine = broken()
    engine.is_broken = engine.is_hopeless = True
    loop = EngineLoop(engine)
    handle = loop.submit(ask("a", draw(20, 1), 5))
    loop.start()
    (last,) = list(handle)
    assert isinstance(last, Finished)
    assert last.error == "CacheIntegrityError: and cannot be put right"
    with pytest.raises(EngineClosedError):
        loop.submit(ask("b", draw(20, 1), 5))
    loop.close()


def test_closing_ends_everything() -> None:
    loop = EngineLoop(drive().engine)
    loop.start()
    handle = loop.submit(ask("a", draw(20, 1), 900))
    next(iter(handle))
    loop.close()
    loop.close()
    *_, last = handle
    assert isinstance(last, Finished)
    assert last.reason is FinishReason.CANCELLED
    with pytest.raises(EngineClosedError, match="was closed"):
        loop.submit(ask("b", (1,)))
    with pytest.raises(EngineClosedError):
        loop.check_integrity()
    assert is_clean(loop.stats())


def test_closing_what_was_never_started() -> None:
    loop = EngineLoop(drive().engine)
    handle = loop.submit(ask("a", draw(20, 1), 5))
    loop.close()
    (last,) = list(handle)
    assert isinstance(last, Finished)
    assert last.reason is FinishReason.CANCELLED


def test_an_idle_engine_does_nothing() -> None:
    engine = broken()
    loop = EngineLoop(engine)
    loop.start()
    list(loop.submit(ask("a", draw(20, 1), 5)))
    await_stats(loop, is_clean)
    before = engine.calls
    time.sleep(0.2)
    assert engine.calls - before <= 1  # the turn in which the last event was handed out
    loop.close()


def test_queue_times_count_from_submission(gate: Gate) -> None:
    now = [0.0]
    config = EngineConfig(pages=64)
    engine = build_engine(gate, TOKENIZER, config, clock=lambda: now[0])  # type: ignore[arg-type]
    loop = EngineLoop(engine)
    loop.start()
    first = loop.submit(ask("first", draw(20, 1), 1))
    assert gate.entered.wait(PATIENCE_S)
    second = loop.submit(dataclasses.replace(ask("second", draw(20, 2), 1), deadline_s=9.0))
    third = loop.submit(dataclasses.replace(ask("third", draw(20, 3), 1), deadline_s=7.0))
    now[0] = 8.0
    gate.open.set()
    started = next(iter(second))
    assert isinstance(started, Started)
    assert started.queue_s == 8.0
    (last,) = list(third)
    assert isinstance(last, Finished)
    assert last.reason is FinishReason.DEADLINE
    assert isinstance(next(iter(first)), Started)
    loop.close()
