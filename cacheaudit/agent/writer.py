"""The writer's thread: attempts in, calls into the store, in batches and in small pieces."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from cacheaudit.agent.attempt import Attempt
from cacheaudit.agent.faults import Faults
from cacheaudit.agent.ledger import Ledger
from cacheaudit.agent.pace import Pace
from cacheaudit.agent.sizes import Made

STOP: Final = "stop"


class Maker(Protocol):
    """Makes calls of attempts; lives in the writer's thread."""

    def calls(self, attempt: Attempt) -> list[Made]:
        """Return the calls that an attempt stands for: one, or those of a batch, or none.

        Args:
            attempt: The attempt; where it has not ended yet, what is known of it so far.
        """
        ...


class Job:
    """Something that the writer is to do between two batches."""

    __slots__ = ("future", "work")

    def __init__(self, work: Callable[[Ledger], Any]) -> None:
        self.work = work
        self.future: Future[Any] = Future()

    def run(self, ledger: Ledger) -> None:
        """Do it; an exception is handed to the one who asked."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.work(ledger))
        except BaseException as error:
            self.future.set_exception(error)


class Writer:
    """Takes from the queue until it is told to stop.

    Args:
        queue: Attempts, jobs, and ``STOP``.
        make: Makes the maker when the first attempt comes.
        ledger: Where calls go.
        release: Told of every attempt that needs its place no longer.
        lighten: Told of every attempt whose body is needed no longer.
        faults: Counts what fails.
        pace: Tells when to work.
        busy: Held while there is work on hand: a fork waits for it, so that the child gets no
            module half imported and no lock of the database that nobody will ever release.
        batch: Most attempts in one transaction.
        linger: Seconds that a call may wait for others to be written with.
        learn: Told of every call.
    """

    def __init__(
        self,
        queue: SimpleQueue[Any],
        make: Callable[[], Maker],
        ledger: Ledger,
        release: Callable[[Attempt], None],
        lighten: Callable[[Attempt], None],
        faults: Faults,
        pace: Pace,
        busy: threading.Lock,
        batch: int,
        linger: float,
        learn: Callable[[Made], None] | None,
    ) -> None:
        self._queue = queue
        self._make = make
        self._maker: Maker | None = None
        self._ledger = ledger
        self._release = release
        self._lighten = lighten
        self._faults = faults
        self._pace = pace
        self._busy = busy
        self._batch = batch
        self._linger = linger
        self._learn = learn
        self._calls: list[Made] = []
        self._finished: list[Attempt] = []
        self._due: float | None = None

    def run(self) -> None:
        """Work; returns when told to stop."""
        while True:
            try:
                first = self._queue.get(timeout=self._left())
            except Empty:
                self._pace.wait(self._pace.deadline())
                with self._busy:
                    self._settle()
                continue
            deadline = self._pace.deadline()
            if isinstance(first, Attempt):
                self._pace.wait(deadline)
            if not self._tried([first, *self._waiting()], deadline):
                return

    def _left(self) -> float | None:
        """Return the seconds until what was made is to be written; ``None``: nothing was."""
        return None if self._due is None else max(0.0, self._due - time.monotonic())

    def _tried(self, items: list[Any], deadline: float) -> bool:
        try:
            return self._work(items, deadline)
        except Exception as error:
            self._faults("writer", error)
            return self._give_up(items, error)

    def _waiting(self) -> list[Any]:
        found: list[Any] = []
        while len(found) < self._batch:
            try:
                found.append(self._queue.get_nowait())
            except Empty:
                break
        return found

    def _work(self, items: list[Any], deadline: float) -> bool:
        """Work through items in order, piece by piece; ``False``: one of them says stop."""
        go_on = True
        for item in items:
            if isinstance(item, Attempt):
                with self._busy:
                    self._take(item)
                self._pace.wait(deadline)
                continue
            with self._busy:
                self._settle()
                if isinstance(item, Job):
                    item.run(self._ledger)
                elif item == STOP:
                    go_on = False
        with self._busy:
            if not go_on or self._is_due():
                self._settle()
            if not go_on:
                self._close()
        return go_on

    def _is_due(self) -> bool:
        is_full = len(self._calls) >= self._batch or self._pace.is_pressing
        return is_full or self._left() == 0.0

    def _give_up(self, items: list[Any], error: Exception) -> bool:
        """Let nobody wait for what failed; ``False`` where one of the items says stop."""
        for item in items:
            if isinstance(item, Attempt):
                if item.ending is not None:
                    self._release(item)
            elif isinstance(item, Job) and not item.future.done():
                item.future.set_exception(error)
        return STOP not in [item for item in items if isinstance(item, str)]

    def _take(self, attempt: Attempt) -> None:
        """Make the calls of an attempt."""
        if attempt.finished:
            return
        if self._due is None:
            self._due = time.monotonic() + self._linger
        if attempt.ending is not None:
            attempt.finished = True
            self._finished.append(attempt)
        if not attempt.void:
            self._calls += self._made_of(attempt)
        if attempt.finished:
            self._lighten(attempt)

    def _made_of(self, attempt: Attempt) -> list[Made]:
        try:
            if self._maker is None:
                self._maker = self._make()
            made = self._maker.calls(attempt)
        except Exception as error:
            self._faults("make", error)
            return []
        if self._learn is not None:
            for call in made:
                try:
                    self._learn(call)
                except Exception as error:
                    self._faults("learn", error)
        return made

    def _settle(self) -> None:
        """Write what was made."""
        calls, finished = self._calls, self._finished
        self._calls, self._finished, self._due = [], [], None
        try:
            if calls:
                self._ledger.write(calls)
        except Exception as error:
            self._faults("write", error)
        for attempt in finished:
            self._release(attempt)

    def _close(self) -> None:
        try:
            self._ledger.close()
        except Exception as error:
            self._faults("close", error)
