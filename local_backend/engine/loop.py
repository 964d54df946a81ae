"""A thread that owns an engine, so that any number of threads and coroutines may use it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from local_backend.engine.api import EngineStats, Event, Finished, FinishReason, GenerationRequest
from local_backend.engine.core import Engine
from local_backend.engine.handle import Handle
from local_backend.errors import CacheStateError, EngineBusyError, EngineClosedError

_log = logging.getLogger(__name__)
_by_name = attrgetter("name")
# How often to look again for pages that are on their way to a tier.
_POLL_S = 0.002

_Result = TypeVar("_Result")


class EngineLoop:
    """Runs an engine in a thread of its own.

    Args:
        engine: Nobody else may use it from then on.
        name: Of the thread.
    """

    def __init__(self, engine: Engine, *, name: str = "engine") -> None:
        self._engine = engine
        self._intake = engine.intake
        self._capacity = engine.capacity
        self._changed = threading.Condition()
        self._calls: list[Callable[[], None]] = []
        self._handles: dict[str, Handle] = {}
        self._refused = 0
        self._stats = engine.stats()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def engine(self) -> Engine:
        """The engine; only what never changes may be read: model, tokenizer, config."""
        return self._engine

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, request: GenerationRequest) -> Handle:
        """Take a request, from any thread.

        Raises:
            EngineRequestError: It makes no sense.
            RequestTooLargeError: It is longer than the context or the cache.
            EngineBusyError: As many run and wait as may.
            CacheStateError: A live request has its name.
            EngineClosedError: The loop was closed.
        """
        self._intake.check(request)
        handle = Handle(request.name, self._ask_to_cancel)
        with self._changed:
            self._require_open()
            if request.name in self._handles:
                raise CacheStateError(f"request {request.name!r} is live already")
            if len(self._handles) >= self._capacity:
                self._refused += 1
                raise EngineBusyError(
                    f"{len(self._handles)} requests run or wait, which is as many as may",
                    "send it again later",
                )
            self._handles[request.name] = handle
            submitted_s = self._engine.now()
            self._calls.append(lambda: self._submit(request, submitted_s))
            self._changed.notify()
        return handle

    def stats(self) -> EngineStats:
        """The engine after its last step, and who was submitted or turned away meanwhile."""
        with self._changed:
            stats, live, refused = self._stats, len(self._handles), self._refused
        waiting = max(0, live - stats.running)
        return replace(stats, waiting=waiting, refused=stats.refused + refused)

    def reset_cache(self) -> int:
        """Forget everything cached, between two steps; how many pages that were.

        Raises:
            CacheStateError: Requests are live, or pages are on their way to a tier.
            EngineClosedError: The loop was closed.
        """
        return self._call(self._engine.reset_cache)

    def check_integrity(self) -> None:
        """Compare all books of the engine with what is really held, between two steps.

        Raises:
            CacheIntegrityError: Something contradicts.
            EngineClosedError: The loop was closed.
        """
        self._call(self._engine.check_integrity)

    def close(self) -> None:
        """Cancel what is live, end the thread, finish offloads. May be called twice."""
        with self._changed:
            was_closing, self._is_closing = self._is_closing, True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        elif not was_closing:  # it was never started; whoever waits is told all the same
            self._run()
        if not was_closing:
            self._engine.close()

    # Called from any thread.

    def _require_open(self) -> None:
        if self._is_closing:
            raise EngineClosedError("the engine was closed and takes no more requests")

    def _ask_to_cancel(self, name: str) -> None:
        with self._changed:
            self._calls.append(lambda: self._cancel(name))
            self._changed.notify()

    def _call(self, function: Callable[[], _Result]) -> _Result:
        future: Future[_Result] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        with self._changed:
            self._require_open()
            self._calls.append(run)
            self._changed.notify()
        return future.result()

    # Called in the engine's thread.

    def _run(self) -> None:
        try:
            self._turns()
        except BaseException as error:
            # Not even ending the requests worked. Nobody may be left waiting.
            _log.critical("the engine ended: %s", type(error).__name__)
            with self._changed:
                self._is_closing = True
                names = list(self._handles)
            for name in names:
                self._hand_out([_failure(name, error)])
            raise

    def _turns(self) -> None:
        while True:
            with self._changed:
                while not (self._calls or self._is_closing or self._engine.has_work):
                    # Pages on their way to a tier become free while nothing else happens.
                    is_idle = self._engine.is_settled
                    self._changed.wait(None if is_idle else _POLL_S)
                    if not is_idle:
                        break
                calls, self._calls = self._calls, []
                is_closing = self._is_closing
            for call in calls:
                call()
            if is_closing:
                self._engine.cancel_all()
            events = self._step()
            self._deliver(events)
            if is_closing:
                return
            if not events and self._engine.is_stalled:
                with self._changed:
                    self._changed.wait(_POLL_S)

    def _submit(self, request: GenerationRequest, submitted_s: float) -> None:
        try:
            self._engine.submit(request, submitted_s=submitted_s)
        except Exception as error:
            self._deliver([_failure(request.name, error)])

    def _cancel(self, name: str) -> None:
        self._engine.cancel(name)

    def _step(self) -> list[Event]:
        try:
            return self._engine.step()
        except Exception as error:
            # Nothing of a prompt is in these messages, but lengths and names may be.
            _log.exception("a step of the engine failed; its requests are ended")
            return self._engine.fail_all(error)

    def _deliver(self, events: list[Event]) -> None:
        stats = self._engine.stats()
        with self._changed:
            self._stats = stats
        self._hand_out(events)

    def _hand_out(self, events: list[Event]) -> None:
        ended = [event.name for event in events if isinstance(event, Finished)]
        with self._changed:
            handles = dict(self._handles)
            for name in ended:
                self._handles.pop(name, None)
        for name, group in groupby(sorted(events, key=_by_name), key=_by_name):
            handle = handles.get(name)
            if handle is not None:
                handle.feed(list(group))


def _failure(name: str, error: BaseException) -> Finished:
    return Finished(
        name=name,
        reason=FinishReason.FAILED,
        text="",
        output_tokens=0,
        error=f"{type(error).__name__}: {error}",
    )
