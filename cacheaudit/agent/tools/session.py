"""One conversation's view of a directory: declarations that stay, calls that are answered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cacheaudit.agent.outputs.reading import OutputReader
from cacheaudit.agent.tools import native
from cacheaudit.agent.tools.call_tool import Caller
from cacheaudit.agent.tools.drift import Drift, compare, fields
from cacheaudit.agent.tools.exposure import Exposure, Style, declared, in_style
from cacheaudit.agent.tools.finding import Finder
from cacheaudit.agent.tools.schemas import make_tool
from cacheaudit.agent.tools.shown import Shown
from cacheaudit.agent.tools.tool import (
    CALL,
    SCRIPT,
    SEARCH,
    Outcome,
    Tool,
    encoded,
    failure,
)
from cacheaudit.errors import ToolDriftError

if TYPE_CHECKING:
    from cacheaudit.agent.codemode.codemode import CodeMode
    from cacheaudit.agent.tools.directory import ToolDirectory

_NO_ARGUMENTS: Final[dict[str, Any]] = {}


class ToolSession:
    """What one conversation declares, and how its calls are answered.

    Args:
        directory: The tools.
        exposure: How they are shown.
        model: Model that is called.
        surface: Where.

    Attributes:
        exposure: The exposure in force.
        fallback: Why it is not the one that was asked for; ``None``: it is.
        betas: Names to send as ``betas`` with every request; they never change either.
    """

    def __init__(
        self,
        directory: ToolDirectory,
        exposure: Exposure,
        model: str | None,
        surface: str | None,
    ) -> None:
        self.directory = directory
        self.fallback: str | None = None
        if exposure == "deferred":
            self.fallback = native.unsupported(model, surface)
            exposure = "search" if self.fallback else "deferred"
        self.exposure: Exposure = exposure
        self.betas: tuple[str, ...] = native.BETAS if exposure == "deferred" else ()
        self.code: CodeMode | None = _scripts(directory) if exposure == "codemode" else None
        self._fixed = {tool.name: tool for tool in _readers(directory)}
        # Permission is asked for tools; reading again what one returned needs none.
        self._reading = Caller(directory.outputs)
        for tool in self._fixed.values():
            self._reading.prepare(tool)
        known = directory.tools()
        script = self.code.tool if self.code else None
        listed = declared(exposure, known, list(self._fixed.values()), script)
        self._bytes = encoded(listed).encode()
        self._names = frozenset(tool["name"] for tool in listed)
        self._own = {tool.name: tool for tool in known if tool.name in self._names}
        self.shown = Shown()
        self.finder = Finder(directory, self.shown, self._own if exposure == "deferred" else None)

    def tools(self, style: Style = "anthropic") -> list[dict[str, Any]]:
        """Return the declarations to send; the same bytes every time, a new list each.

        Args:
            style: The API that they are for.
        """
        return in_style(json.loads(self._bytes), style)

    @property
    def tools_bytes(self) -> bytes:
        """The declarations as JSON."""
        return self._bytes

    @property
    def fingerprint(self) -> str:
        """A digest of the declarations."""
        return hashlib.blake2b(self._bytes, digest_size=12).hexdigest()

    def check(self, tools: Any) -> None:
        """Make sure that a request's tools are those of the session; markers do not matter.

        Raises:
            ToolDriftError: They are not; names the first tool and field.
        """
        found = compare(self.tools(), tools if isinstance(tools, list) else [])
        if found:
            more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
            raise ToolDriftError(
                f"The tools of this request are not those of its session: {found[0]}{more}.",
                "Send session.tools() unchanged; open a new session for other tools.",
            )

    def drift(self) -> list[Drift]:
        """Name what declared tools look like now that they did not when the session began."""
        found: list[Drift] = []
        for name in sorted(self._own):
            now = self.directory.get(name)
            if now is None:
                found.append(Drift(name, "tools", "removed"))
                continue
            if now.digest() != self._own[name].digest():
                changed = fields(self._own[name].definition(), now.definition())
                found += [Drift(name, field, "changed") for field in changed]
        return found

    def answer(self, reply: Any) -> list[dict[str, Any]]:
        """Answer all tool calls of a reply.

        Args:
            reply: The message that the model sent, as the SDK returns it or as a mapping.

        Returns:
            Messages to append behind the reply: results, and where tools were loaded by value the
            system message that brings them. Empty where nothing was called.
        """
        return self.directory.loop.run(self.aanswer(reply))

    async def aanswer(self, reply: Any) -> list[dict[str, Any]]:
        """Answer all tool calls of a reply; see ``answer``."""
        self.next_batch()
        calls = [block for block in _content(reply) if _get(block, "type") == "tool_use"]
        if not calls:
            return []
        results = []
        for block in calls:
            outcome = await self.acall(_get(block, "name"), _get(block, "input"))
            result = {
                "type": "tool_result",
                "tool_use_id": _get(block, "id"),
                "content": outcome.content,
            }
            results.append({**result, "is_error": True} if outcome.is_error else result)
        messages = [{"role": "user", "content": results}]
        changes = self.finder.changes()
        if changes:
            messages.append({"role": "system", "content": changes})
        return messages

    def next_batch(self) -> None:
        """Note that the results so far were sent and that the model has answered."""
        self.shown.sent()

    def resume(self, messages: Sequence[Any]) -> None:
        """Take what the model has read from a history: after a restart or a compaction."""
        self.shown.rebuild(list(messages))
        self.finder.rebuild(list(messages))

    def call(self, name: str, arguments: Any = None) -> Outcome:
        """Answer one tool call.

        Args:
            name: The name that the model used.
            arguments: What it gave: an object, or its JSON.
        """
        return self.directory.loop.run(self.acall(name, arguments))

    async def acall(self, name: str, arguments: Any = None) -> Outcome:
        """Answer one tool call; see ``call``."""
        arguments = _parsed(arguments)
        if name not in self._names and not self.finder.is_loaded(name):
            return self._unknown(name)
        if name == SEARCH and SEARCH in self._names:
            return self.finder.search(arguments)
        if name == CALL and CALL in self._names:
            return await self._relayed(arguments)
        if name == SCRIPT and self.code is not None:
            return await self.code.acall(arguments)
        fixed = self._fixed.get(name)
        if fixed is not None:
            return await self._reading.call(fixed, arguments)
        return await self._direct(name, arguments)

    async def _direct(self, name: str, arguments: Any) -> Outcome:
        """Run a tool that is declared, or loaded, under its own name."""
        tool = self.directory.get(name)
        declared_as = self._own.get(name)
        if tool is None:
            do = "Go on without it; it does not come back by trying again."
            return failure(name, "unavailable", do, problem="it was removed during this session")
        if self.exposure == "deferred" and not (tool.pinned and declared_as):
            loaded = self.finder.loaded(name)
            if loaded is None:
                do = f"Find it with {SEARCH} first and call it in your next reply."
                return failure(name, "schema_not_shown", do)
            declared_as = declared_as or loaded
        if declared_as is not None and declared_as.input_schema != tool.input_schema:
            changed = fields(declared_as.definition(), tool.definition())
            do = "Go on without it: this session declares how it used to be."
            return failure(name, "schema_changed", do, fields=changed)
        return await self.directory.caller.call(tool, arguments)

    async def _relayed(self, arguments: Any) -> Outcome:
        """Run a tool through ``call_tool``: one whose schema the model has read."""
        given = arguments if isinstance(arguments, Mapping) else {}
        name, inner = given.get("name"), given.get("arguments", _NO_ARGUMENTS)
        if not isinstance(name, str) or set(given) - {"name", "arguments"}:
            problem = {"at": "/", "problem": 'it takes "name" and "arguments", nothing else'}
            do = "Name the tool, and put its arguments into one object."
            return failure(CALL, "invalid_arguments", do, problems=[problem])
        tool = self.directory.get(name)
        if tool is None:
            return self._unknown(name)
        digest = self.shown.digest(name)
        if tool.pinned and name in self._names:
            return await self._direct(name, inner)
        if digest != tool.digest():
            return self.finder.unread(tool, changed=digest is not None)
        return await self.directory.caller.call(tool, inner)

    def _unknown(self, name: str) -> Outcome:
        alike = self.directory.alike(str(name))
        do = f"Find it with {SEARCH}." if SEARCH in self._names else "Use a tool that is declared."
        return failure(str(name), "unknown_tool", do, did_you_mean=alike)


def _parsed(arguments: Any) -> Any:
    """Read arguments that are JSON text, as some APIs hand them over; all else stays."""
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
    return arguments


def _readers(directory: ToolDirectory) -> list[Tool]:
    """Make the tools that read stored outputs, where there is a store."""
    outputs = directory.outputs
    if outputs.store is None:
        return []
    reader = OutputReader(outputs.store, outputs.budget, outputs.count)
    return [make_tool(reader.read_output), make_tool(reader.search_output)]


def _scripts(directory: ToolDirectory) -> CodeMode:
    from cacheaudit.agent.codemode.codemode import CodeMode

    return CodeMode(directory, limits=directory.limits)


def _content(reply: Any) -> list[Any]:
    content = _get(reply, "content")
    return list(content) if isinstance(content, list | tuple) else []


def _get(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
