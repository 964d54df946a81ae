"""Runs a script in ``pydantic-monty``: an interpreter of its own in a process of its own.

The script cannot reach files, the network, the environment or this process; all it has are the
functions that it is given. Each script gets a fresh interpreter; a worker that died is replaced.
The driver below answers the interpreter step by step from a plain thread, so that neither an event
loop nor the program's end ever waits for a script.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from cacheaudit._lazy import need
from cacheaudit.agent.codemode.checks import serious
from cacheaudit.agent.codemode.settings import CodeLimits

Function = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""Answers a call of the script. A future is awaited by the script; all else is its value."""

_CHECKOUT: Final = 60.0
_GRACE: Final = 2.0
_LONGEST_LINE: Final = 200
_HEAD: Final = 1_000
_TAIL: Final = 2_000
_SPARE: Final = 1_000
_FORKED: Final = "scripts do not run in a forked process; start it with the method 'spawn'"


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a script ended.

    Attributes:
        value: Of its last expression.
        error: ``type_errors`` and ``syntax_error`` (nothing was run), ``failed``, ``timed_out``,
            ``worker_died``, ``busy``; ``None``: it came to its end.
        message: The error in words, for the model.
    """

    value: Any = None
    error: str | None = None
    message: str = ""


class Sandbox:
    """A few workers, started when they are first needed.

    Args:
        limits: In force for every script.

    Raises:
        MissingExtraError: ``pydantic-monty`` is not installed; no weaker sandbox is used.
    """

    def __init__(self, limits: CodeLimits) -> None:
        self._monty = need("pydantic_monty", "codemode")
        self._limits = limits
        self._lock = threading.Lock()
        self._pool: Any = None
        self._pid = 0
        self._end: weakref.finalize[Any, Any] | None = None
        self._busy: set[int] = set()

    def run(
        self,
        code: str,
        functions: Mapping[str, Function],
        stubs: str,
        on_print: Callable[[str], None],
    ) -> Ran:
        """Check a script and run it; blocks until it ends. Never raises on account of the script.

        Args:
            code: The script; its last expression is its value.
            functions: What it may call, by name.
            stubs: Their types.
            on_print: Gets what it prints; an exception from it ends the script.
        """
        deadline = time.monotonic() + self._limits.seconds
        monty = self._monty
        if self._pid not in (0, os.getpid()):
            # The library's threads are the parent's; waiting for them would never end.
            return Ran(error="failed", message=_FORKED)
        try:
            with self._running().checkout(
                limits=self._resources(),
                type_check=True,
                type_check_stubs=stubs,
                type_check_format="concise",
                # Sleeps are answered here, so that they end with the script's time.
                os_policy={"sleep": "call_host"},
            ) as session:
                pid = session.worker_pid
                self._busy.add(pid)
                try:
                    return self._checked(session, code, functions, on_print, deadline)
                finally:
                    self._busy.discard(pid)
        except monty.MontyTypingError as error:
            return Ran(error="type_errors", message=_short(error.display()))
        except monty.MontySyntaxError as error:
            return Ran(error="syntax_error", message=_short(error.display("traceback")))
        except monty.MontyRuntimeError as error:
            return Ran(error="failed", message=_short(error.display("traceback")))
        except monty.MontyCrashedError as error:
            kind = "timed_out" if error.timed_out else "worker_died"
            return Ran(error=kind, message=_short(str(error)))
        except monty.MontyError as error:
            return Ran(error="failed", message=_short(str(error)))
        except TimeoutError:
            return Ran(error="busy", message=f"no worker was free within {_CHECKOUT:g} s")

    def close(self) -> None:
        """End the workers."""
        with self._lock:
            end, self._end, self._pool = self._end, None, None
        if end is not None:
            end()

    def _running(self) -> Any:
        with self._lock:
            if self._pool is None:
                pool = self._monty.Monty(
                    min_processes=1,
                    max_processes=self._limits.workers,
                    checkout_timeout=_CHECKOUT,
                    # For a worker that no longer answers at all.
                    request_timeout=self._limits.compute_seconds + 2 * _GRACE,
                    feed_duration_limit_grace=_GRACE,
                )
                pool.__enter__()
                self._pool, self._pid = pool, os.getpid()
                self._end = weakref.finalize(self, _leave, pool, self._busy, self._pid)
            return self._pool

    def _resources(self) -> dict[str, Any]:
        limits = self._limits
        return {
            "max_memory": limits.memory,
            "max_feed_duration_secs": limits.compute_seconds,
            "max_recursion_depth": limits.recursion,
            # A call may take three steps: the name, the call, its result. Beyond that nothing of
            # the script runs any more, not even its handlers of exceptions.
            "max_suspensions": 3 * limits.calls + limits.helper_calls + _SPARE,
        }

    def _checked(
        self,
        session: Any,
        code: str,
        functions: Mapping[str, Function],
        on_print: Callable[[str], None],
        deadline: float,
    ) -> Ran:
        """Check the types, then run; run too where nothing that was found is a mistake for sure."""
        start = partial(session.feed_start, code, print_callback=lambda _, text: on_print(text))
        try:
            return self._drive(start, functions, deadline)
        except self._monty.MontyTypingError as error:
            if serious(error.display(), functions):
                raise
        return self._drive(partial(start, skip_type_check=True), functions, deadline)

    def _drive(
        self,
        start: Callable[[], Any],
        functions: Mapping[str, Function],
        deadline: float,
    ) -> Ran:
        """Answer what the script asks for until it ends or its time is over."""
        monty = self._monty
        pending: dict[int, concurrent.futures.Future[Any]] = {}
        try:
            step = start()
            while not isinstance(step, monty.MontyComplete):
                if time.monotonic() > deadline:
                    return self._late()
                if isinstance(step, monty.FutureSnapshot):
                    settled = _settled(pending, step.pending_call_ids, deadline)
                    if not settled:
                        return self._late()
                    step = step.resume(settled)
                elif isinstance(step, monty.NameLookupSnapshot):
                    step = _looked_up(step, functions)
                elif step.is_os_function and step.function_name not in functions:
                    step = step.resume_auto()
                else:
                    step = self._called(step, functions, pending)
            return Ran(value=step.output)
        finally:
            for future in pending.values():
                future.cancel()

    def _called(
        self,
        step: Any,
        functions: Mapping[str, Function],
        pending: dict[int, concurrent.futures.Future[Any]],
    ) -> Any:
        function = functions.get(step.function_name)
        if function is None:
            return step.resume({"exception": NameError(f"{step.function_name} is not defined")})
        try:
            value = function(step.args, step.kwargs)
        except Exception as error:
            return step.resume({"exception": _plain(error)})
        if isinstance(value, concurrent.futures.Future):
            pending[step.call_id] = value
            return step.resume({"future": ...})
        return step.resume({"return_value": value})

    def _late(self) -> Ran:
        seconds = self._limits.seconds
        return Ran(error="timed_out", message=f"the script did not end within {seconds:g} s")


def _settled(
    pending: dict[int, concurrent.futures.Future[Any]], ids: list[int], deadline: float
) -> dict[int, Any]:
    """Wait for one of the calls that a script awaits; empty where its time is over."""
    awaited = {pending[call]: call for call in ids if call in pending}
    left = max(0.0, deadline - time.monotonic())
    done, _ = concurrent.futures.wait(awaited, left, return_when=concurrent.futures.FIRST_COMPLETED)
    results: dict[int, Any] = {}
    for future in done:
        call = awaited[future]
        del pending[call]
        try:
            results[call] = {"return_value": future.result()}
        except Exception as error:
            results[call] = {"exception": _plain(error)}
    return results


def _looked_up(step: Any, functions: Mapping[str, Function]) -> Any:
    if step.object_id is None and step.variable_name in functions:
        # What is bound only has to be callable: the call comes back here by its name.
        name = step.variable_name

        def stand_in() -> None:
            raise NotImplementedError

        stand_in.__name__ = stand_in.__qualname__ = name
        return step.resume(value=stand_in)
    return step.resume()


def _plain(error: BaseException) -> BaseException:
    """Return an exception that the interpreter knows, with its words cut."""
    kinds = (PermissionError, TimeoutError, ValueError, TypeError, KeyError, MemoryError)
    kind = next((kind for kind in kinds if isinstance(error, kind)), RuntimeError)
    text = str(error.args[0]) if error.args else type(error).__name__
    return kind(_short(text))


def _short(text: str) -> str:
    """Cut an error: long lines, and the middle of many."""
    lines = [
        line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
        for line in text.strip().splitlines()
    ]
    whole = "\n".join(lines)
    if len(whole) <= _HEAD + _TAIL:
        return whole
    return f"{whole[:_HEAD]}\n…\n{whole[-_TAIL:]}"


def _leave(pool: Any, busy: set[int], owner: int) -> None:
    """End the workers; one in the middle of a script would go on until its time is over."""
    if os.getpid() != owner:
        return
    for pid in list(busy):
        with contextlib.suppress(OSError):
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    pool.__exit__(None, None, None)
