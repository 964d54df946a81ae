"""An event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for threads without a loop. Started when it is first used.

    The thread does not keep the program alive. A forked child starts its own.
    """

    def __init__(self, name: str = "cacheaudit-tools") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine, in the context of the caller."""
        context = contextvars.copy_context()
        result: concurrent.futures.Future[T] = concurrent.futures.Future()
        loop = self._running()

        def start() -> None:
            task = loop.create_task(coroutine, context=context)
            task.add_done_callback(lambda done: _hand_over(done, result))
            result.add_done_callback(lambda asked: _end(loop, task) if asked.cancelled() else None)

        loop.call_soon_threadsafe(start)
        return result

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for what it returns.

        Raises:
            RuntimeError: The caller is the loop's own thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("This would wait for itself: use the asynchronous method here.")
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread; what still runs is cancelled."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None or self._pid != os.getpid():
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                ready = threading.Event()
                loop = self._loop = asyncio.new_event_loop()
                self._pid = os.getpid()
                self._thread = threading.Thread(
                    target=_serve, args=(loop, ready), name=self._name, daemon=True
                )
                self._thread.start()
                ready.wait()
            return self._loop


async def in_thread(call: Callable[[], T]) -> T:
    """Run a function in a thread of its own and wait for it.

    A thread that is given up runs on, but holds nothing up: neither the loop nor the program's end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def tell(set_it: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            set_it(value)

    def work() -> None:
        set_it: Callable[[Any], None]
        value: Any
        try:
            set_it, value = future.set_result, context.run(call)
        except Exception as error:
            set_it, value = future.set_exception, _carried(error)
        except BaseException as error:  # a tool's own end must not be the program's
            set_it, value = future.set_exception, RuntimeError(f"{type(error).__name__}: {error}")
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, set_it, value)

    threading.Thread(target=work, name="cacheaudit-tool", daemon=True).start()
    return await future


def _carried(error: Exception) -> Exception:
    """Return an exception in a form that a future can hold."""
    return RuntimeError(f"StopIteration: {error}") if isinstance(error, StopIteration) else error


def _serve(loop: asyncio.AbstractEventLoop, ready: threading.Event) -> None:
    asyncio.set_event_loop(loop)
    loop.call_soon(ready.set)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _hand_over(task: asyncio.Task[T], result: concurrent.futures.Future[T]) -> None:
    if result.cancelled() or not result.set_running_or_notify_cancel():
        return
    if task.cancelled():
        result.set_exception(concurrent.futures.CancelledError())
    elif (error := task.exception()) is not None:
        result.set_exception(error)
    else:
        result.set_result(task.result())


def _end(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(task.cancel)
