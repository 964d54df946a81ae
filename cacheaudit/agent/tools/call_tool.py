"""Carries out one call: permitted, valid, in time; whatever goes wrong becomes an answer."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from cacheaudit.agent.outputs.filter import OutputFilter
from cacheaudit.agent.tools.loop import in_thread
from cacheaudit.agent.tools.tool import Outcome, Tool, ToolOutput, failure
from cacheaudit.agent.tools.validate import Validator

Permit = Callable[[Tool, Mapping[str, Any]], bool | str | Awaitable[bool | str]]
"""Says whether a call may run: ``True``, or ``False`` or a reason why not."""

_LONGEST: Final = 2_000
_NOTHING: Final = "(no output)"


class ToolUnavailableError(Exception):
    """What a tool raises when whoever offers it cannot be reached."""


class Raw(msgspec.Struct, frozen=True):
    """What a call gave before it is put into words: a value, or the failure in its place."""

    value: Any = None
    failed: Outcome | None = None
    seconds: float = 0.0


class Caller:
    """Runs tools.

    Args:
        outputs: Cuts what is too large.
        permit: Asked before each call; an exception from it counts as no. ``None``: all may run.
        timeout: Seconds for a call where the tool names none.
    """

    def __init__(
        self,
        outputs: OutputFilter | None = None,
        permit: Permit | None = None,
        timeout: float = 60.0,
    ) -> None:
        self.outputs = outputs or OutputFilter()
        self._permit = permit
        self._timeout = timeout
        self._validators: dict[str, tuple[Tool, Validator]] = {}

    def prepare(self, tool: Tool) -> None:
        """Make sure that a tool's arguments can be checked.

        Raises:
            MissingExtraError: The library for it is not installed.
            ToolError: Its schema makes no sense.
        """
        self._validator(tool)

    async def call(self, tool: Tool, arguments: Any) -> Outcome:
        """Run a tool for the model. Never raises but for the cancellation of the caller."""
        raw = await self.raw(tool, arguments)
        return raw.failed or self._told(tool, raw)

    async def raw(self, tool: Tool, arguments: Any) -> Raw:
        """Run a tool and return its value as it is, for a script."""
        refused = self._invalid(tool, arguments) or await self._forbidden(tool, arguments)
        if refused is not None:
            return Raw(failed=refused)
        seconds = tool.timeout or self._timeout
        started = time.monotonic()
        try:
            value = await asyncio.wait_for(_run(tool, _as_mapping(arguments)), seconds)
        except TimeoutError as error:
            passed = time.monotonic() - started
            if passed < seconds:
                return Raw(failed=_broken(tool, error), seconds=passed)
            do = "Ask for less at a time, or go on without it. It may still be running."
            problem = f"no result within {seconds:g} s"
            return Raw(failed=failure(tool.name, "timed_out", do, problem=problem), seconds=passed)
        except ToolUnavailableError as error:
            do = "Go on without it or try again later; other tools still work."
            return Raw(failed=failure(tool.name, "unavailable", do, problem=str(error)[:_LONGEST]))
        except (Exception, SystemExit) as error:
            return Raw(failed=_broken(tool, error), seconds=time.monotonic() - started)
        return Raw(value, seconds=time.monotonic() - started)

    def _validator(self, tool: Tool) -> Validator:
        known = self._validators.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._validators[tool.name] = tool, Validator(tool)
        return known[1]

    def _invalid(self, tool: Tool, arguments: Any) -> Outcome | None:
        mapping = _as_mapping(arguments)
        if mapping is None:
            problems = [{"at": "/", "problem": "the arguments are not an object"}]
        else:
            problems = self._validator(tool).problems(mapping)
        return invalid(tool, problems) if problems else None

    async def _forbidden(self, tool: Tool, arguments: Any) -> Outcome | None:
        if self._permit is None:
            return None
        try:
            answer = self._permit(tool, _as_mapping(arguments) or {})
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception:
            answer = "the permission check failed"
        if answer is True:
            return None
        reason = answer if isinstance(answer, str) else "not allowed here"
        do = "Do not try again; find another way or ask the user."
        return failure(tool.name, "not_permitted", do, problem=reason)

    def _told(self, tool: Tool, raw: Raw) -> Outcome:
        """Put a value into content blocks, its text cut to the budget."""
        output = as_output(raw.value)
        done = self.outputs.apply(output.text, exit_status=output.exit_status)
        content: str | list[dict[str, Any]] = done.text
        if output.blocks:
            text = [{"type": "text", "text": done.text}] if done.text else []
            content = [*text, *output.blocks]
        elif not done.text:
            content = _NOTHING
        return Outcome(
            tool=tool.name,
            content=content,
            is_error=output.is_error,
            seconds=raw.seconds,
            tokens_before=done.tokens_before,
            tokens_after=done.tokens_after,
            handle=done.handle,
        )


def invalid(tool: Tool, problems: list[dict[str, str]]) -> Outcome:
    """Make the answer to arguments that do not fit."""
    do = "Correct the arguments and call again; the schema is that of the tool."
    return failure(tool.name, "invalid_arguments", do, problems=problems)


def as_output(value: Any) -> ToolOutput:
    """Read what a tool returned: text, JSON, a model, content blocks or a ``ToolOutput``."""
    if isinstance(value, ToolOutput):
        return value
    if value is None:
        return ToolOutput()
    if isinstance(value, str):
        return ToolOutput(text=value)
    if isinstance(value, bytes | bytearray):
        return ToolOutput(text=bytes(value).decode("utf-8", "replace"))
    if _are_blocks(value):
        text = "\n".join(str(block.get("text", "")) for block in value if block["type"] == "text")
        return ToolOutput(text=text, blocks=tuple(b for b in value if b["type"] != "text"))
    return ToolOutput(text=json.dumps(plain(value), ensure_ascii=False, default=str))


def plain(value: Any) -> Any:
    """Turn models and other structures into what JSON knows."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [plain(item) for item in items]
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return value if isinstance(value, str | int | float | bool) else str(value)


def _are_blocks(value: Any) -> bool:
    kinds = ("text", "image", "document", "search_result", "tool_reference")
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(block, dict) and block.get("type") in kinds for block in value)
    )


def _as_mapping(arguments: Any) -> dict[str, Any] | None:
    """Read arguments; some models write the object as a string."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if isinstance(arguments, Mapping):
        return dict(arguments)
    return {} if arguments is None else None


async def _run(tool: Tool, arguments: dict[str, Any] | None) -> Any:
    values = arguments or {}
    if inspect.iscoroutinefunction(tool.run):
        return await tool.run(values)
    value = await in_thread(lambda: tool.run(values))
    return await value if inspect.isawaitable(value) else value


def _broken(tool: Tool, error: BaseException) -> Outcome:
    problems = _pydantic_problems(error)
    if problems:
        return invalid(tool, problems)
    text = f"{type(error).__name__}: {error}"
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    do = "Read the problem; change the arguments or the approach before another try."
    return failure(tool.name, "failed", do, problem=text)


def _pydantic_problems(error: BaseException) -> list[dict[str, str]]:
    """Read the errors of a function's own types, which may ask for more than its schema."""
    if type(error).__name__ != "ValidationError" or not hasattr(error, "errors"):
        return []
    try:
        return [
            {"at": "/" + "/".join(map(str, item["loc"])), "problem": str(item["msg"])}
            for item in error.errors()[:10]
        ]
    except Exception:
        return []
