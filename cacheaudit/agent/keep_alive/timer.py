"""The thread that keeps the keeper's time. There is none while nothing is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from cacheaudit.agent.faults import Faults

_LONGEST: Final = 30.0
_MOST_REFRESHES: Final = 8


class Timer:
    """Calls ``tick`` when it asked to be called, or earlier when woken.

    Args:
        tick: Does what is due; returns the seconds until it wants to be called again, or ``None``.
        faults: Counts what fails.
    """

    def __init__(self, tick: Callable[[], float | None], faults: Faults) -> None:
        self._tick = tick
        self._faults = faults
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._workers: set[threading.Thread] = set()
        self._places = threading.BoundedSemaphore(_MOST_REFRESHES)

    def after_fork(self) -> None:
        """Begin anew in a child process, which has none of the threads."""
        self._begin()

    def wake(self) -> None:
        """Have ``tick`` called soon."""
        with self._lock:
            if self._closed:
                return
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="cacheaudit-keep-alive", daemon=True
                )
                self._thread.start()

    def start(self, work: Callable[[], None]) -> None:
        """Run something in a thread of its own, a few at a time."""
        thread = threading.Thread(
            target=self._work, args=(work,), name="cacheaudit-refresh", daemon=True
        )
        with self._lock:
            if self._closed:
                return
            self._workers.add(thread)
        thread.start()

    def _work(self, work: Callable[[], None]) -> None:
        try:
            with self._places:
                work()
        except Exception as error:
            self._faults("keep_alive_worker", error)
        finally:
            with self._lock:
                self._workers.discard(threading.current_thread())

    def _run(self) -> None:
        while True:
            self._wanted.clear()
            try:
                wait = self._tick()
            except Exception as error:
                self._faults("keep_alive_timer", error)
                wait = _LONGEST
            with self._lock:
                if self._closed or (wait is None and not self._wanted.is_set()):
                    self._thread = None
                    return
            # Short waits, since a computer that slept must notice that its refreshes are late.
            self._wanted.wait(min(_LONGEST, _LONGEST if wait is None else wait))

    def close(self, timeout: float = 2.0) -> None:
        """End the threads; a refresh that is on its way is not waited for any longer than this."""
        with self._lock:
            self._closed = True
            self._wanted.set()
            threads = [t for t in (self._thread, *self._workers) if t is not None]
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout)

    def reopen(self) -> None:
        """Allow threads again after a close."""
        with self._lock:
            self._closed = False
