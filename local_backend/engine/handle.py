"""The events of one request, for whoever waits for them: a thread, or a coroutine."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType

from local_backend.engine.api import Event, Finished


class Handle:
    """A request that was submitted.

    Iterating gives its events up to :class:`~local_backend.engine.api.Finished`; an iteration that
    was left goes on where it stopped. One reader at a time. As a context manager it cancels the
    request on leaving, if it has not ended.

    Args:
        name: Of the request.
        cancel: Asks the engine to end it.
    """

    def __init__(self, name: str, cancel: Callable[[str], None]) -> None:
        self.name = name
        self._cancel = cancel
        self._events: deque[Event] = deque()
        self._arrived = threading.Condition()
        self._waker: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._is_finished = False
        self._is_read = False

    @property
    def is_finished(self) -> bool:
        """Whether the last event has arrived, read or not."""
        return self._is_finished

    def cancel(self) -> None:
        """End the request, from any thread; its last event still comes."""
        if not self._is_finished:
            self._cancel(self.name)

    def feed(self, events: Sequence[Event]) -> None:
        """Deliver events; called by the engine's thread."""
        with self._arrived:
            self._events.extend(events)
            self._is_finished = self._is_finished or isinstance(events[-1], Finished)
            self._arrived.notify_all()
            waker = self._waker
        if waker is not None:
            loop, event = waker
            with contextlib.suppress(RuntimeError):  # the reader's loop is gone, and so is he
                loop.call_soon_threadsafe(event.set)

    def __iter__(self) -> Iterator[Event]:
        while not self._is_read:
            with self._arrived:
                while not self._events:
                    self._arrived.wait()
            yield self._next()

    async def __aiter__(self) -> AsyncIterator[Event]:
        event = asyncio.Event()
        with self._arrived:
            self._waker = (asyncio.get_running_loop(), event)
        try:
            while not self._is_read:
                event.clear()
                if self._events:
                    yield self._next()
                else:
                    await event.wait()
        finally:
            with self._arrived:
                self._waker = None

    def _next(self) -> Event:
        event = self._events.popleft()
        self._is_read = isinstance(event, Finished)
        return event

    def __enter__(self) -> Handle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()
