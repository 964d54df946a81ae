"""Takes attempts from any thread, and has them written by a thread of its own.

What the caller's thread does: reserve a place, and put a reference into a queue that never blocks.
All else happens in the writer's thread. When places or bytes run out, bodies and then whole calls
are left out and counted; the caller never waits.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from cacheaudit.agent.attempt import Attempt
from cacheaudit.agent.faults import Faults
from cacheaudit.agent.ledger import CallStore, Ledger
from cacheaudit.agent.pace import Pace
from cacheaudit.agent.rope import Packer
from cacheaudit.agent.sizes import Made
from cacheaudit.agent.writer import STOP, Job, Maker, Writer

_T = TypeVar("_T")
_AT_EXIT = 30.0
_LONGEST_WAIT = 2.0


class Limits(msgspec.Struct, frozen=True):
    """How much may wait.

    Attributes:
        calls: Attempts that run or wait to be written; more are not recorded.
        body_bytes: Bytes of request bodies among them; beyond, calls are recorded without prompt.
        batch: Attempts written in one transaction.
        quiet: Seconds without any call beginning or ending after which the writer works.
        patience: Seconds after which it works anyway.
        linger: Seconds that a call may wait for others to be written with.
    """

    calls: int = 10_000
    body_bytes: int = 256 << 20
    batch: int = 256
    quiet: float = 0.02
    patience: float = 2.0
    linger: float = 1.0


class RecorderState(msgspec.Struct, frozen=True):
    """What became of the attempts so far.

    Attributes:
        written: Calls written to the store; a stream written before its end counts twice.
        waiting: Attempts that run or wait to be written.
        dropped_calls: Attempts not recorded, because too many waited.
        dropped_bodies: Calls recorded without their prompt, because too many bytes waited.
        lost: Calls that the store refused for good.
        faults: What failed inside, by place and kind.
    """

    written: int
    waiting: int
    dropped_calls: int
    dropped_bodies: int
    lost: int
    faults: dict[str, int]


class Recorder:
    """The queue in front of the writer, and the account of what is in it.

    Args:
        make: Makes the maker, in the writer's thread and anew after a fork.
        open_store: Opens the store, in the writer's thread.
        faults: Counts what goes wrong.
        limits: How much may wait.
        learn: Told of every call that was made, in the writer's thread.
        project: Project that sessions are filed under.
    """

    def __init__(
        self,
        make: Callable[[], Maker],
        open_store: Callable[[], CallStore],
        faults: Faults,
        limits: Limits | None = None,
        learn: Callable[[Made], None] | None = None,
        project: str | None = None,
    ) -> None:
        self._make = make
        self._open_store = open_store
        self._faults = faults
        self._limits = limits or Limits()
        self._learn = learn
        self._project = project
        self._era = 0
        self._inherited: list[Any] = []
        self._begin_era()
        _watch(self)

    def _begin_era(self) -> None:
        """Start from nothing, as a new process must: threads and locks do not survive a fork."""
        self._era += 1
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._pace = Pace(self._limits.quiet, self._limits.patience, self._is_crowded)
        self._busy = threading.Lock()
        self._paused_by: int | None = None
        self._closing = threading.Event()
        self._ledger = Ledger(self._open_store, self._faults, self._closing, self._project)
        self._thread: threading.Thread | None = None
        self._open: dict[int, Attempt] = {}
        self._packer = Packer()
        self._bytes = 0
        self._dropped_calls = 0
        self._dropped_bodies = 0

    def before_fork(self) -> None:
        """Wait until the writer has nothing on hand; not for ever, since a store may be locked."""
        if self._busy.acquire(timeout=_LONGEST_WAIT):
            self._paused_by = threading.get_ident()

    def after_fork_in_parent(self) -> None:
        """Let the writer go on."""
        if self._paused_by == threading.get_ident():
            self._paused_by = None
            self._busy.release()

    def after_fork_in_child(self) -> None:
        """Leave to the parent what is the parent's; called in the child, before anything else."""
        # Closing a connection that the parent uses too could damage it, so it is left open.
        self._inherited.append(self._ledger)
        self._faults.after_fork()
        self._begin_era()

    def reserve(self, attempt: Attempt) -> bool:
        """Take a place for an attempt; ``False``: there is none, it will not be recorded."""
        attempt.era = self._era
        self._pace.touch()
        with self._lock:
            if len(self._open) >= self._limits.calls:
                self._dropped_calls += 1
                return False
            self._start()
            self._open[id(attempt)] = attempt
        return True

    def weigh(self, attempt: Attempt) -> None:
        """Account for the body of an attempt, or drop it where too many bytes wait.

        While others wait, kept is what an earlier body of the same line does not have. One by one
        bodies need not be compared: the next one finds the memory of the last one free.
        """
        size, packed = 0, attempt.packed
        if packed is not None and self._bytes:
            line = (attempt.scope.session, attempt.scope.lane)
            packed = attempt.packed = self._packer.pack(line, bytes(packed))
        if packed is not None:
            size = len(packed.tail) or len(packed)
        with self._lock:
            if self._bytes + size > self._limits.body_bytes:
                self._dropped_bodies += 1
                attempt.packed = None
                return
            self._bytes += size
            attempt.reserved += size

    def hand_over(self, attempt: Attempt) -> None:
        """Give an attempt to the writer, when it has ended or when a stream has begun.

        Takes no lock and is safe in destructors.
        """
        if attempt.era == self._era:
            self._pace.touch()
            self._queue.put(attempt)

    def ask(self, work: Callable[[Ledger], _T], timeout: float | None = None) -> _T:
        """Run something in the writer's thread, behind all that was handed over before.

        Raises:
            TimeoutError: It did not come to it in time.
        """
        job = Job(work)
        with self._lock:
            self._start()
        self._queue.put(job)
        self._pace.urgent.set()
        try:
            found: _T = job.future.result(timeout)
        finally:
            self._pace.urgent.clear()
        return found

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until all attempts that have ended are written; ``False``: not in time."""
        if self._thread is None:
            return True
        try:
            self.ask(lambda _: None, timeout)
        except Exception as error:
            # Often the end of a program: no moment to raise.
            if not isinstance(error, TimeoutError):
                self._faults("flush", error)
            return False
        return True

    def close(self, timeout: float = 10.0) -> bool:
        """Write what has ended, and what streams have said so far, and end the thread.

        A call that is recorded later begins anew.
        """
        with self._lock:
            thread, running = self._thread, list(self._open.values())
        if thread is None:
            return True
        for attempt in running:
            self._queue.put(attempt)
        done = self.flush(timeout)
        self._closing.set()
        self._queue.put(STOP)
        thread.join(timeout)
        self._closing.clear()
        with self._lock:
            if self._thread is thread and not thread.is_alive():
                self._thread = None
        return done and not thread.is_alive()

    @property
    def state(self) -> RecorderState:
        """What became of the attempts so far."""
        with self._lock:
            return RecorderState(
                written=self._ledger.written,
                waiting=len(self._open),
                dropped_calls=self._dropped_calls,
                dropped_bodies=self._dropped_bodies,
                lost=self._ledger.lost,
                faults=self._faults.counts(),
            )

    def _start(self) -> None:
        """Start the thread where it does not run; the lock is held."""
        if self._thread is not None and self._thread.is_alive():
            return
        writer = Writer(
            queue=self._queue,
            make=self._make,
            ledger=self._ledger,
            release=self._release,
            lighten=self._lighten,
            faults=self._faults,
            pace=self._pace,
            busy=self._busy,
            batch=self._limits.batch,
            linger=self._limits.linger,
            learn=self._learn,
        )
        self._thread = threading.Thread(target=writer.run, name="cacheaudit-writer", daemon=True)
        self._thread.start()
        _finish_with_worker(self)

    def _is_crowded(self) -> bool:
        """Whether a quarter of what may wait does wait; read without the lock, so about right."""
        limits = self._limits
        return 4 * self._bytes > limits.body_bytes or 4 * len(self._open) > limits.calls

    def _lighten(self, attempt: Attempt) -> None:
        """Let go of the body of an attempt that still needs its place."""
        attempt.packed = attempt.prepared = None
        with self._lock:
            self._bytes -= attempt.reserved
            attempt.reserved = 0

    def _release(self, attempt: Attempt) -> None:
        with self._lock:
            if self._open.pop(id(attempt), None) is not None:
                self._bytes -= attempt.reserved


def _watch(recorder: Recorder) -> None:
    """Have a recorder told of forks and of the end of the program, without keeping it alive."""
    found = weakref.ref(recorder)

    def tell(what: Callable[[Recorder], object]) -> Callable[[], None]:
        def told() -> None:
            if (mine := found()) is not None:
                with contextlib.suppress(Exception):
                    what(mine)

        return told

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=tell(Recorder.before_fork),
            after_in_parent=tell(Recorder.after_fork_in_parent),
            after_in_child=tell(Recorder.after_fork_in_child),
        )
    atexit.register(tell(lambda mine: mine.close(_AT_EXIT)))


def _finish_with_worker(recorder: Recorder) -> None:
    """Have the queue written when a ``multiprocessing`` worker ends: it runs no exit handlers."""
    util, package = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing")
    if util is not None and package is not None and package.parent_process() is not None:
        util.Finalize(recorder, recorder.close, args=(_AT_EXIT,), exitpriority=10)
