"""What a script may call: the tools of the directory, and its helpers."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cacheaudit.agent.codemode.printed import Printed
from cacheaudit.agent.codemode.sandbox import Function
from cacheaudit.agent.codemode.settings import CodeLimits
from cacheaudit.agent.codemode.stubs import functions_of, parameters, stub
from cacheaudit.agent.codemode.values import Values
from cacheaudit.agent.outputs.excerpt import excerpt
from cacheaudit.agent.outputs.reading import OutputReader
from cacheaudit.agent.tools.call_tool import Raw, as_output, plain
from cacheaudit.agent.tools.tool import Tool, encoded
from cacheaudit.errors import OutputError

if TYPE_CHECKING:
    from cacheaudit.agent.tools.directory import ToolDirectory

_RECORDED: Final = 200
_PREVIEW: Final = 200
_MOST_FOUND: Final = 50
_MOST_EXCERPT: Final = 10_000
# Seconds of one search.
_SHORTEST_SEARCH: Final = 0.1
_LONGEST_SEARCH: Final = 5.0


class NestedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that a script made.

    Attributes:
        tool: Name of the tool.
        arguments: Their beginning, as JSON.
        seconds: How long it took.
        error: Why it failed; ``None``: it did not.
    """

    tool: str
    arguments: str
    seconds: float
    error: str | None = None


class Record:
    """Calls of one script: the first ones whole, all counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: list[NestedCall] = []
        self.done: Counter[str] = Counter()
        self.started = 0
        self.helped = 0

    def begin(self, most: int) -> None:
        """Count a call of a tool.

        Raises:
            RuntimeError: It is one too many.
        """
        with self._lock:
            self.started += 1
            if self.started > most:
                raise RuntimeError(f"a script may call tools {most} times")

    def help(self, most: int) -> None:
        """Count a call of a helper.

        Raises:
            RuntimeError: It is one too many.
        """
        self.helped += 1
        if self.helped > most:
            raise RuntimeError(f"a script may call its helpers {most} times")

    def end(self, call: NestedCall) -> None:
        """Note a call that has ended."""
        with self._lock:
            if call.error is None:
                self.done[call.tool] += 1
            if len(self.calls) < _RECORDED:
                self.calls.append(call)


class Functions:
    """Makes the functions of one script.

    Args:
        directory: The tools.
        limits: How far the script may go.
        values: What scripts of this session keep.
        home: The loop in which tools run: that of whoever asked for the script.
    """

    def __init__(
        self,
        directory: ToolDirectory,
        limits: CodeLimits,
        values: Values,
        home: asyncio.AbstractEventLoop,
    ) -> None:
        self.tools = functions_of(directory.tools())
        self.output = Printed(limits.output_bytes)
        self.record = Record()
        self._directory = directory
        self._limits = limits
        self._values = values
        self._home = home
        self._end = time.monotonic() + limits.seconds

    def all(self) -> dict[str, Function]:
        """Return everything that can be called, by name."""
        outputs = self._directory.outputs
        helpers: dict[str, Callable[..., Any]] = {
            "text": self.output.line,
            "store": self._values.store,
            "load": self._values.load,
            "search_tools": self._search,
            "describe_tool": self._describe,
            "excerpt": self._excerpt,
        }
        if outputs.store is not None:
            reader = OutputReader(outputs.store, outputs.budget, outputs.count)
            keep = outputs.store.put
            helpers["save_output"] = lambda value: keep(str(value)).handle
            helpers["read_output"] = reader.read_output
            helpers["search_output"] = self._search_output
        helpers["time.sleep"] = lambda seconds: time.sleep(self._bounded(seconds))
        helpers["asyncio.sleep"] = self._sleep
        made = {name: self._helper(function) for name, function in helpers.items()}
        return {**{name: self._function(tool) for name, tool in self.tools.items()}, **made}

    def _search_output(self, handle: str, pattern: str, limit: int = 50) -> str:
        """Search with what is left of the script's time, less what it needs to say so."""
        outputs = self._directory.outputs
        if outputs.store is None:
            raise OutputError("There is no store of outputs.")
        left = max(_SHORTEST_SEARCH, min(_LONGEST_SEARCH, (self._end - time.monotonic()) * 0.8))
        reader = OutputReader(outputs.store, outputs.budget, outputs.count, patience=left)
        return reader.search_output(handle, pattern, limit)

    def _bounded(self, seconds: float) -> float:
        """Refuse a sleep that would outlast the script's time; waiting for it would be in vain."""
        left = self._end - time.monotonic()
        if seconds > left:
            raise TimeoutError(
                f"{seconds:g} s of sleep are more than the {left:.0f} s that are left"
            )
        return max(0.0, float(seconds))

    def _sleep(self, seconds: float, *_: Any) -> Any:
        sleeping = asyncio.sleep(self._bounded(seconds))
        return asyncio.run_coroutine_threadsafe(sleeping, self._home)

    def _helper(self, function: Callable[..., Any]) -> Function:
        def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            self.record.help(self._limits.helper_calls)
            return function(*args, **kwargs)

        return call

    def _function(self, tool: Tool) -> Function:
        def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            arguments = _named(tool, args, kwargs)
            self.record.begin(self._limits.calls)
            coroutine = self._call(tool, arguments)
            return asyncio.run_coroutine_threadsafe(coroutine, self._home)

        return call

    async def _call(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        raw = await self._directory.caller.raw(tool, arguments)
        preview = _preview(arguments)
        error = raw.failed.error if raw.failed else None
        output = None if raw.failed else as_output(raw.value)
        if output is not None and output.is_error:
            error = "failed"
        self.record.end(
            NestedCall(tool=tool.name, arguments=preview, seconds=raw.seconds, error=error)
        )
        if raw.failed is not None:
            raise _exception(raw)
        value = _value(raw.value)
        size = len(value) if isinstance(value, str | bytes) else 0
        if size > self._limits.result_bytes:
            unit = "bytes" if isinstance(value, bytes) else "characters"
            raise ValueError(f"{tool.name} returned {size} {unit}, too many for a script")
        if output is not None and output.is_error:
            raise RuntimeError(f"{tool.name}: {output.text}")
        return value

    def _search(self, query: str, limit: int = 5) -> list[dict[str, str]]:
        names = {tool.name: name for name, tool in self.tools.items()}
        found = self._directory.search(query, max(1, min(limit, _MOST_FOUND)))
        return [
            {
                "name": tool.name,
                "function": names[tool.name],
                "description": tool.description.strip().split("\n")[0],
            }
            for tool in found
            if tool.name in names
        ]

    def _describe(self, name: str) -> str:
        by_name = {tool.name: function for function, tool in self.tools.items()}
        function = name if name in self.tools else by_name.get(name)
        if function is None:
            alike = ", ".join(self._directory.alike(str(name)))
            raise ValueError(f"there is no tool {name!r}; alike: {alike or 'none'}")
        tool = self.tools[function]
        schema = encoded(tool.input_schema)
        signature = stub(function, tool).removesuffix(": ...")
        return f"{signature}\n{tool.description}\narguments: {schema}"

    def _excerpt(self, value: str, max_tokens: int = 500) -> str:
        # It is cut in this program, whose memory the sandbox does not limit.
        if len(value) > self._limits.result_bytes:
            raise ValueError(f"excerpt(): {len(value)} characters are too many at once")
        most = max(1, min(max_tokens, _MOST_EXCERPT))
        count = self._directory.outputs.count
        return value if count(value) <= most else excerpt(value, most, count).text


def unknown_names(message: str, tools: Mapping[str, Tool], directory: ToolDirectory) -> str:
    """Name tools that a script may have meant, where the checker knows no such name."""
    found: list[str] = []
    by_name = {tool.name: function for function, tool in tools.items()}
    for name in dict.fromkeys(re.findall(r"Name `(\w+)` used when not defined", message)):
        alike = [by_name[tool] for tool in directory.alike(name) if tool in by_name]
        if alike:
            found.append(f"{name}: did you mean {', '.join(alike)}?")
    return "\n".join(found)


def _named(tool: Tool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Give positional arguments their names, in the order of the signature."""
    names = [name for name, _, _ in parameters(tool)]
    if len(args) > len(names):
        raise TypeError(f"{tool.name} takes {len(names)} arguments, {len(args)} were given")
    named = dict(zip(names, args, strict=False))
    twice = named.keys() & kwargs.keys()
    if twice:
        raise TypeError(f"{tool.name} got {min(twice)!r} twice")
    return {name: plain(value) for name, value in {**named, **kwargs}.items()}


def _preview(arguments: dict[str, Any]) -> str:
    text = encoded(arguments)
    return text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}…"


def _value(value: Any) -> Any:
    """Turn what a tool returned into what the interpreter knows."""
    output = as_output(value)
    if output is value:  # the tool said itself what a script gets
        return plain(output.value) if output.value is not None else output.text
    return value if isinstance(value, str | bytes) else plain(value)


def _exception(raw: Raw) -> Exception:
    failed = raw.failed
    assert failed is not None  # noqa: S101 - for the type checker
    body = json.loads(str(failed.content))
    problem = body.get("problem") or "; ".join(
        f"{item['at']}: {item['problem']}" for item in body.get("problems", ())
    )
    text = f"{failed.tool}: {failed.error}: {problem}"
    kinds: dict[str, type[Exception]] = {
        "invalid_arguments": ValueError,
        "not_permitted": PermissionError,
        "timed_out": TimeoutError,
    }
    return kinds.get(failed.error or "", RuntimeError)(text)
