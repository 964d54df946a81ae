"""Sends a fan-out: with threads, or as tasks of an event loop. Neither is left behind."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cacheaudit.agent.fan_out.layout import Group, Layout
from cacheaudit.agent.fan_out.release import Release
from cacheaudit.errors import UsageError

Began = Callable[[], None]
Send = Callable[[Mapping[str, Any], Began | None], Any]
AsyncSend = Callable[[Mapping[str, Any], Began | None], Awaitable[Any]]
Enter = Callable[[int], None]


class FanOutResult(list[Any]):
    """The responses, in the order of the requests.

    Attributes:
        groups: Which requests shared what, and which of them went first.
    """

    def __init__(self, responses: Sequence[Any], groups: tuple[Group, ...]) -> None:
        super().__init__(responses)
        self.groups = groups

    @property
    def cache_read(self) -> int | None:
        """Tokens that all of them read from the cache; ``None`` where one does not say."""
        return self._sum("cache_read_input_tokens")

    @property
    def cache_write(self) -> int | None:
        """Tokens that all of them wrote to it; ``None`` where one does not say."""
        return self._sum("cache_creation_input_tokens")

    def _sum(self, field: str) -> int | None:
        counts = [getattr(getattr(reply, "usage", None), field, None) for reply in self]
        known = [count for count in counts if isinstance(count, int)]
        return sum(known) if len(known) == len(counts) else None


def check(requests: Sequence[Any], concurrency: int) -> None:
    """Refuse what cannot be sent.

    Raises:
        UsageError: A request is no mapping or asks for a stream, or nothing may be sent at once.
    """
    if concurrency < 1:
        raise UsageError(f"fan_out: concurrency is {concurrency}.", "Give 1 or more.")
    for number, request in enumerate(requests):
        if not isinstance(request, Mapping):
            raise UsageError(
                f"fan_out: request {number} is {type(request).__name__}, not a mapping.",
                "Give the arguments of messages.create as dicts.",
            )
        if request.get("stream"):
            raise UsageError(
                f"fan_out: request {number} asks for a stream.",
                "Leave stream out: whole responses are returned.",
            )


class _Run:
    """What both ways of sending keep of a run. Guarded by the caller."""

    def __init__(self, layout: Layout) -> None:
        self.release = Release(layout.after)
        self.results: list[Any] = [None] * len(layout.bodies)
        self.left = len(layout.bodies)

    def result(self, layout: Layout, *, return_exceptions: bool) -> FanOutResult:
        """Return the responses, or raise what the first request that failed raised."""
        if not return_exceptions:
            for found in self.results:
                if isinstance(found, BaseException):
                    raise found
        return FanOutResult(self.results, layout.groups)


def send_all(
    layout: Layout,
    send: Send,
    *,
    concurrency: int = 8,
    return_exceptions: bool = False,
    enter: Enter | None = None,
) -> FanOutResult:
    """Send the requests of a layout with threads.

    Args:
        layout: The plan.
        send: Sends one body and returns its response; given a second argument, it calls that as
            soon as the response has begun.
        concurrency: Most requests on their way at once.
        return_exceptions: Put exceptions in the places of responses instead of raising the first.
        enter: Called with the request's position in the thread that sends it, before it is sent.
    """
    run, lock, done = _Run(layout), threading.Lock(), threading.Event()
    if not layout.bodies:
        return FanOutResult([], ())
    outer = contextvars.copy_context()
    with ThreadPoolExecutor(concurrency, thread_name_prefix="cacheaudit-fan-out") as pool:

        def go(free: list[int]) -> None:
            for index in free:
                pool.submit(outer.copy().run, work, index)

        def work(index: int) -> None:
            has_begun = False

            def began() -> None:
                nonlocal has_begun
                if not has_begun:
                    has_begun = True
                    with lock:
                        go(run.release.began(index))

            try:
                if enter is not None:
                    enter(index)
                with lock:
                    leads = run.release.is_awaited(index)
                run.results[index] = send(layout.bodies[index], began if leads else None)
                began()
            except BaseException as error:
                run.results[index] = error
                with lock:
                    go([] if has_begun else run.release.failed(index))
            with lock:
                run.left -= 1
                if not run.left:
                    done.set()

        try:
            with lock:
                go(run.release.first())
            done.wait()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return run.result(layout, return_exceptions=return_exceptions)


async def asend_all(
    layout: Layout,
    send: AsyncSend,
    *,
    concurrency: int = 8,
    return_exceptions: bool = False,
    enter: Enter | None = None,
) -> FanOutResult:
    """Send the requests of a layout as tasks; see :func:`send_all`.

    Where the caller is cancelled, so are all requests.
    """
    run, places = _Run(layout), asyncio.Semaphore(concurrency)
    async with asyncio.TaskGroup() as group:

        def go(free: list[int]) -> None:
            for index in free:
                group.create_task(work(index))

        async def work(index: int) -> None:
            has_begun = False

            def began() -> None:
                nonlocal has_begun
                if not has_begun:
                    has_begun = True
                    go(run.release.began(index))

            try:
                if enter is not None:
                    enter(index)  # a task has a context of its own
                async with places:
                    call_back = began if run.release.is_awaited(index) else None
                    run.results[index] = await send(layout.bodies[index], call_back)
                began()
            except Exception as error:
                run.results[index] = error
                go([] if has_begun else run.release.failed(index))

        go(run.release.first())
    return run.result(layout, return_exceptions=return_exceptions)
