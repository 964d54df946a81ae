"""Coroutines for callers without a loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from cacheaudit.agent.tools.loop import LoopThread, in_thread

HERE: contextvars.ContextVar[str] = contextvars.ContextVar("here")


def test_it_runs_in_the_callers_context() -> None:
    loop = LoopThread()

    async def where() -> tuple[str, str]:
        return HERE.get(), await in_thread(HERE.get)

    HERE.set("task 7")
    assert loop.run(where()) == ("task 7", "task 7")
    loop.close()


def test_errors_come_back() -> None:
    loop = LoopThread()

    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        loop.run(fail())
    loop.close()
    loop.close()


def test_it_does_not_wait_for_itself() -> None:
    loop = LoopThread()

    async def nested() -> None:
        loop.run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="wait for itself"):
        loop.run(nested())
    loop.close()


def test_it_starts_anew_after_its_end() -> None:
    loop = LoopThread()
    assert loop.run(asyncio.sleep(0, 1)) == 1
    loop.close()
    assert loop.run(asyncio.sleep(0, 2)) == 2
    loop.close()


def test_what_is_given_up_is_cancelled() -> None:
    loop = LoopThread()
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    future = loop.submit(wait())
    time.sleep(0.05)
    future.cancel()
    assert ended.wait(10)
    loop.close()


@pytest.mark.parametrize("error", [StopIteration("s"), SystemExit(3), KeyboardInterrupt()])
def test_a_tool_cannot_end_the_program(error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def main() -> None:
        with pytest.raises(RuntimeError, match=type(error).__name__):
            await in_thread(fail)

    asyncio.run(main())
