"""Tools of MCP servers, through the official client library.

A server may be slow, fail, come back, and offer other tools than before. None of it reaches what a
session declares: its tools are found by search once they are there, and a call to a server that
cannot be reached is answered with an error that the model can act on.
"""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from cacheaudit._lazy import need
from cacheaudit.agent.tools.call_tool import ToolUnavailableError
from cacheaudit.agent.tools.schemas import in_fixed_order
from cacheaudit.agent.tools.tool import NAME, Tool, ToolOutput
from cacheaudit.errors import ToolError

if TYPE_CHECKING:
    from cacheaudit.agent.tools.directory import ToolDirectory

State = Literal["connecting", "ready", "failed", "closed"]
_LONGEST_NAME: Final = 128
_MOST_PAGES: Final = 1000
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LEAVE: Final = 5.0
# The library's own code for a connection that has ended.
_LOST: Final = (-32000,)


class _Link:
    """One connection: a server that was lost gets another."""

    def __init__(self) -> None:
        self.client: Any = None
        self.stop = False
        self.wake = asyncio.Event()

    def end(self) -> None:
        """Have the connection left by the task that holds it."""
        self.stop = True
        self.wake.set()


class McpServer:
    """One server and its tools.

    Args:
        directory: Where its tools go.
        name: What it is called; the beginning of its tools' names.
        server: A URL, a command as a mapping, or whatever the client library takes.
        timeout: Seconds to wait for it, and for each call.

    Attributes:
        state: ``connecting``, ``ready``, ``failed`` or ``closed``.
        problems: What went wrong, in words; the newest last.

    Raises:
        MissingExtraError: The client library is not installed.
        ToolError: The name cannot begin a tool's name.
    """

    def __init__(self, directory: ToolDirectory, name: str, server: Any, timeout: float) -> None:
        if not NAME.fullmatch(name):
            raise ToolError(
                f"{name[:140]!r} is no name for a server.", "Use letters, digits, _ and -."
            )
        self.name = name
        self.state: State = "connecting"
        self.problems: list[str] = []
        self._library = need("mcp", "mcp")
        self._directory = directory
        self._server = server
        self._timeout = timeout
        self._link = _Link()
        self._settled = threading.Event()
        self._task: concurrent.futures.Future[None] | None = None

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self.state = "connecting"
        self._settled.clear()
        self._link = _Link()
        self._task = self._directory.loop.submit(self._serve(self._link))

    def wait(self, timeout: float | None = None) -> State:
        """Wait until the server is ready or has failed, and return which."""
        self._settled.wait(timeout)
        return self.state

    def refresh(self) -> None:
        """Ask the server for its tools again."""
        self._directory.loop.run(self._list())

    def close(self) -> None:
        """Leave the server; its tools go with it."""
        task, self._task = self._task, None
        if task is not None:
            with contextlib.suppress(Exception):
                self._directory.loop.submit(_end(self._link)).result(_LEAVE)
                task.result(_LEAVE)
            task.cancel()
        self.state = "closed"
        self._directory.replace_source(self._source, [])

    @property
    def _source(self) -> str:
        return f"mcp:{self.name}"

    async def _serve(self, link: _Link) -> None:
        """Hold a connection open: it must be entered and left in one task."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self._timeout):
                    client = self._library.Client(
                        self._target(),
                        message_handler=_listener(link),
                        read_timeout_seconds=self._timeout,
                    )
                    link.client = await stack.enter_async_context(client)
                    await self._list()
                self.state = "ready"
                self._settled.set()
                changes = asyncio.create_task(_listen(link))
                try:
                    await self._until_stopped(link)
                finally:
                    changes.cancel()
                    await asyncio.gather(changes, return_exceptions=True)
        except TimeoutError:
            self._fail(link, f"no answer within {self._timeout:g} s")
        except Exception as error:
            self._fail(link, _in_words(error))
        finally:
            link.client = None
            self._settled.set()

    async def _until_stopped(self, link: _Link) -> None:
        while True:
            await link.wake.wait()
            link.wake.clear()
            if link.stop:
                return
            try:
                await self._list()
            except Exception as error:
                self.problems.append(_in_words(error))

    def _fail(self, link: _Link, problem: str) -> None:
        """Note a failure, unless another connection has taken the place of this one."""
        if link is self._link and self.state != "closed":
            self.problems.append(problem)
            self.state = "failed"

    def _target(self) -> Any:
        if isinstance(self._server, Mapping):
            if "url" in self._server:
                return self._server["url"]
            return self._library.StdioServerParameters(**self._server)
        return self._server

    async def _list(self) -> None:
        """Take over what the server offers now, page by page."""
        client = self._link.client
        if client is None:
            raise ToolUnavailableError(f"the server {self.name} is not connected")
        offered: list[Any] = []
        cursor = None
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            offered += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        self._directory.replace_source(self._source, self._tools(offered))

    def _tools(self, offered: list[Any]) -> list[Tool]:
        made: dict[str, Tool] = {}
        for tool in sorted(offered, key=lambda tool: str(tool.name)):
            name = tool_name(self.name, tool.name)
            taken = self._directory.get(name)
            if name in made or (taken is not None and taken.source != self._source):
                self.problems.append(f"another tool is called {name}")
                continue
            try:
                made[name] = self._tool(name, tool)
            except (ToolError, ValueError, TypeError) as error:
                self.problems.append(f"{name}: {str(error)[:300]}")
        return list(made.values())

    def _tool(self, name: str, tool: Any) -> Tool:
        made = Tool(
            name=name,
            description=tool.description or "",
            input_schema=in_fixed_order(tool.input_schema),
            run=self._runner(tool.name),
            source=self._source,
            timeout=self._timeout,
            tags=(self.name,),
            trusted=False,
        )
        self._directory.caller.prepare(made)
        made.digest()
        return made

    def _runner(self, name: str) -> Callable[[dict[str, Any]], Awaitable[ToolOutput]]:
        async def run(arguments: dict[str, Any]) -> ToolOutput:
            # The connection lives in the directory's loop, whichever loop the caller is in.
            future = self._directory.loop.submit(self._call(name, arguments))
            return await asyncio.wrap_future(future)

        return run

    async def _call(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        link = await self._connected()
        try:
            result = await link.client.call_tool(name, arguments)
        except Exception as error:
            if _is_refusal(error):
                raise ToolError(f"The server {self.name} refused: {error}") from error
            self._fail(link, _in_words(error))
            link.end()
            raise ToolUnavailableError(f"the server {self.name} was lost") from error
        return output_of(result)

    async def _connected(self) -> _Link:
        """Return the connection; a lost one is tried again once."""
        if self.state == "failed":
            self.start()
        deadline = asyncio.get_running_loop().time() + self._timeout
        while self.state == "connecting" and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        if self.state != "ready" or self._link.client is None:
            raise ToolUnavailableError(f"the server {self.name} cannot be reached")
        return self._link


async def _end(link: _Link) -> None:
    link.end()


async def _listen(link: _Link) -> None:
    """Look again when the server says so, in the newer protocol's way.

    Older servers say it unasked; a stream that cannot be had, or ends, costs no more than that
    changes are seen at the next refresh.
    """
    with contextlib.suppress(Exception):
        async with link.client.listen(tools_list_changed=True) as events:
            async for _ in events:
                link.wake.set()


def _listener(link: _Link) -> Callable[[Any], Awaitable[None]]:
    """Look again when the server says that its tools are others now."""

    async def on_message(message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            link.wake.set()

    return on_message


def tool_name(server: str, tool: str) -> str:
    """Name a server's tool as the API allows it: ``SERVER__TOOL``.

    What does not fit is replaced, and then a digest of the whole keeps names apart.
    """
    wanted = f"{server}__{tool}"
    made = _UNFIT.sub("_", wanted)
    if made == wanted and len(made) <= _LONGEST_NAME:
        return made
    digest = hashlib.blake2b(wanted.encode(), digest_size=4).hexdigest()
    return f"{made[: _LONGEST_NAME - len(digest) - 1]}_{digest}"


def output_of(result: Any) -> ToolOutput:
    """Read what a server returned: text, pictures, and its value for scripts."""
    texts: list[str] = []
    blocks: list[dict[str, Any]] = []
    for item in result.content:
        text, block = _content(item)
        if text:
            texts.append(text)
        if block:
            blocks.append(block)
    value = result.structured_content
    text = "\n".join(texts)
    if not text and not blocks and value is not None:
        text = json.dumps(value, ensure_ascii=False)
    return ToolOutput(text=text, value=value, is_error=bool(result.is_error), blocks=tuple(blocks))


def _content(item: Any) -> tuple[str, dict[str, Any] | None]:
    kind = item.type
    if kind == "text":
        return item.text, None
    if kind == "image":
        source = {"type": "base64", "media_type": item.mime_type, "data": item.data}
        return "", {"type": "image", "source": source}
    if kind == "resource":
        held = item.resource
        text = getattr(held, "text", None)
        if text is None:
            size = len(base64.b64decode(getattr(held, "blob", "") or ""))
            text = f"[{held.uri}: {size} bytes that are no text]"
        return text, None
    if kind == "resource_link":
        return f"[{item.uri}]", None
    return f"[{kind} content left out]", None


def _is_refusal(error: Exception) -> bool:
    """Tell an answer of the server from the loss of the connection."""
    refusal: type = need("mcp", "mcp").MCPError
    return isinstance(error, refusal) and getattr(error, "code", 0) not in _LOST


def _in_words(error: BaseException) -> str:
    """Say what went wrong; of a group, what happened first."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    text = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {text}"[:300]
