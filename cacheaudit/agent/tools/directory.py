"""Holds the tools of a program, whoever offers them, and opens sessions on them."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from cacheaudit.agent.outputs.filter import OutputFilter
from cacheaudit.agent.tools.call_tool import Caller, Permit
from cacheaudit.agent.tools.exposure import EXPOSURES, Exposure
from cacheaudit.agent.tools.loop import LoopThread
from cacheaudit.agent.tools.schemas import make_tool
from cacheaudit.agent.tools.search import ToolIndex
from cacheaudit.agent.tools.tool import RESERVED, Tool
from cacheaudit.errors import ConfigError, ToolError

_LONGEST_NAME: Final = 128

if TYPE_CHECKING:
    from cacheaudit.agent.codemode.sandbox import Sandbox
    from cacheaudit.agent.codemode.settings import CodeLimits
    from cacheaudit.agent.tools.mcp import McpServer
    from cacheaudit.agent.tools.session import ToolSession


class ToolDirectory:
    """Any number of tools, found by words, called by name.

    Tools may come and go at any time and from any thread; a session that is open keeps the bytes
    that it began with.

    Args:
        tools: Functions, definitions or tools to begin with.
        exposure: How sessions show them: ``direct`` declares each; ``search`` declares
            ``search_tools`` and ``call_tool``; ``deferred`` lets the provider load them later, and
            falls back to ``search`` where it cannot; ``codemode`` declares one tool that runs
            scripts.
        outputs: Cuts what tools return; with a store, two tools that read from it are declared too.
        permit: Asked before each call.
        timeout: Seconds for a call where the tool names none.
        limits: Limits of scripts, for ``codemode``.

    Raises:
        ConfigError: There is no such exposure.
        ToolError: A tool cannot be registered.
    """

    def __init__(
        self,
        tools: Iterable[Any] = (),
        *,
        exposure: Exposure = "search",
        outputs: OutputFilter | None = None,
        permit: Permit | None = None,
        timeout: float = 60.0,
        limits: CodeLimits | None = None,
    ) -> None:
        self.exposure: Exposure = _known(exposure)
        self.caller = Caller(outputs, permit, timeout)
        self.loop = LoopThread()
        self.limits = limits
        self._lock = threading.RLock()
        self._tools: dict[str, Tool] = {}
        self._index = ToolIndex()
        self._servers: dict[str, McpServer] = {}
        self._sandboxes: dict[CodeLimits, Sandbox] = {}
        for tool in tools:
            self.add(tool)

    @property
    def outputs(self) -> OutputFilter:
        """What cuts outputs."""
        return self.caller.outputs

    def add(
        self, item: Any, run: Callable[..., Any] | None = None, *, replace: bool = False, **how: Any
    ) -> Tool:
        """Register a tool; the same tool again changes nothing.

        Args:
            item: A function, a pydantic model, a definition or a ``Tool``.
            run: What to call, for models and definitions.
            replace: Whether another tool of the same name may be replaced.
            how: ``name``, ``description``, ``pinned``, ``timeout``, ``tags``: see ``make_tool``.

        Raises:
            ToolError: It is no tool, its name is taken, or its schema is not valid.
            MissingExtraError: The library that checks arguments is not installed.
        """
        tool = make_tool(item, run, **how)
        if tool.name in RESERVED:
            raise ToolError(
                f"The name {tool.name!r} is one of the directory's own.", "Choose another name."
            )
        self.caller.prepare(tool)
        with self._lock:
            known = self._tools.get(tool.name)
            if known is not None and not replace and known.digest() != tool.digest():
                raise ToolError(
                    f"Another tool is called {tool.name!r}.",
                    "Choose another name, or give replace=True.",
                )
            self._tools[tool.name] = tool
            self._index.add(tool)
        return tool

    def tool(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register a function, as a decorator; the function stays as it is.

        Raises:
            ToolError: As for ``add``.
        """
        self.add(function)
        return function

    def remove(self, name: str) -> None:
        """Take a tool away; nothing happens where it is not there."""
        with self._lock:
            self._tools.pop(name, None)
            self._index.remove(name)

    def replace_source(self, source: str, tools: Sequence[Tool]) -> None:
        """Put what a source offers now in place of what it offered before."""
        with self._lock:
            kept = {tool.name for tool in tools}
            for name in [t.name for t in self._tools.values() if t.source == source]:
                if name not in kept:
                    self.remove(name)
            for tool in tools:
                known = self._tools.get(tool.name)
                if known is None or known.source == source:
                    self.add(tool, replace=True)

    def get(self, name: str) -> Tool | None:
        """Return a tool, or ``None``."""
        with self._lock:
            return self._tools.get(name)

    def tools(self) -> list[Tool]:
        """Return all tools by name."""
        with self._lock:
            return [self._tools[name] for name in sorted(self._tools)]

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def search(self, query: str, limit: int = 5) -> list[Tool]:
        """Rank tools by how well they fit some words, the best first.

        Args:
            query: What the tool should do, or its name.
            limit: Most to return.
        """
        with self._lock:
            return [self._tools[name] for name, _ in self._index.search(query, limit)]

    def alike(self, name: str, limit: int = 3) -> list[str]:
        """Name tools that may be meant by a name that is none.

        Args:
            name: The name that was used.
            limit: Most to return.
        """
        with self._lock:
            near = difflib.get_close_matches(name[:_LONGEST_NAME], self._tools, limit)
            found = [tool for tool, _ in self._index.search(name, limit)]
        return list(dict.fromkeys([*near, *found]))[:limit]

    def connect(
        self, name: str, server: Any, *, timeout: float = 30.0, wait: bool = False
    ) -> McpServer:
        """Take the tools of an MCP server, as ``NAME__TOOL``, whenever it is ready.

        Args:
            name: What to call it; letters, digits, ``_`` and ``-``.
            server: A URL, ``{"command": …, "args": …, "env": …}``, or whatever the client library
                takes.
            timeout: Seconds to wait for the server, and for each of its calls.
            wait: Return only when it is ready or has failed.

        Raises:
            MissingExtraError: The client library is not installed.
            ToolError: The name is taken or no name.
        """
        from cacheaudit.agent.tools.mcp import McpServer

        with self._lock:
            if name in self._servers:
                raise ToolError(f"A server is called {name!r} already.", "Choose another name.")
            made = self._servers[name] = McpServer(self, name, server, timeout)
        made.start()
        if wait:
            made.wait()
        return made

    def servers(self) -> list[McpServer]:
        """Return the MCP servers by name."""
        with self._lock:
            return [self._servers[name] for name in sorted(self._servers)]

    def open(
        self,
        *,
        model: str | None = None,
        surface: str | None = "claude_api",
        exposure: Exposure | None = None,
    ) -> ToolSession:
        """Begin a session: its declarations are those of this moment, until it ends.

        Args:
            model: Model that is called, which decides whether it can load tools later.
            surface: Where it is called: ``claude_api``, ``bedrock``, ``google_cloud``, …
            exposure: Instead of the directory's.

        Raises:
            ConfigError: There is no such exposure.
            MissingExtraError: ``codemode`` without its sandbox.
        """
        from cacheaudit.agent.tools.session import ToolSession

        return ToolSession(self, _known(exposure or self.exposure), model, surface)

    def sandbox(self, limits: CodeLimits) -> Sandbox:
        """Return where scripts run; sessions with the same limits share its workers.

        Raises:
            MissingExtraError: ``pydantic-monty`` is not installed.
        """
        from cacheaudit.agent.codemode.sandbox import Sandbox

        with self._lock:
            if limits not in self._sandboxes:
                self._sandboxes[limits] = Sandbox(limits)
            return self._sandboxes[limits]

    def close(self) -> None:
        """Leave the servers, end workers of scripts and what else runs in the background."""
        for server in self.servers():
            server.close()
        with self._lock:
            self._servers.clear()
            sandboxes, self._sandboxes = self._sandboxes, {}
        for sandbox in sandboxes.values():
            sandbox.close()
        self.loop.close()

    def __enter__(self) -> ToolDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _known(exposure: str) -> Exposure:
    if exposure not in EXPOSURES:
        raise ConfigError(f"There is no exposure {exposure!r}.", f"Choose {', '.join(EXPOSURES)}.")
    return exposure  # type: ignore[return-value]
