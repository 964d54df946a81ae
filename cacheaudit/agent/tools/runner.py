"""The session in the Anthropic SDK's own loop: runnable tools, and a client that keeps watch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from cacheaudit._lazy import need
from cacheaudit.agent.tools.session import ToolSession
from cacheaudit.agent.tools.tool import SEARCH, Outcome


def attach(session: ToolSession, client: Any) -> Any:
    """Return a client that checks the tools of every request and notes what the model has read.

    Args:
        session: The session.
        client: ``Anthropic`` or ``AsyncAnthropic``; stays as it is.

    Raises:
        MissingExtraError: The SDK is not installed.
    """
    base: type = need("anthropic", "anthropic").Middleware

    def before(request: Any) -> None:
        body = request.json
        if not isinstance(body, dict) or "messages" not in body:
            return
        # A thread that is continued sends no tools: the server holds those of its beginning.
        if "tools" in body:
            session.check(body["tools"])
        session.shown.seen_in(body["messages"])

    def handle(_: Any, request: Any, call_next: Callable[[Any], Any]) -> Any:
        before(request)
        return call_next(request)

    async def handle_async(_: Any, request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        before(request)
        return await call_next(request)

    made = type("ToolWatch", (base,), {"handle": handle, "handle_async": handle_async})
    return client.with_middleware(made())


def runnable(session: ToolSession, *, asynchronous: bool = False) -> list[Any]:
    """Return the session's tools in the form that the SDK's tool runner takes.

    Which schemas the model has read is known only where the runner's client is one of ``attach``;
    ``tool_runner`` sees to it.

    Raises:
        MissingExtraError: The SDK is not installed.
    """
    functions = need("anthropic.lib.tools", "anthropic")
    need("anthropic", "anthropic")
    name = "BetaAsyncBuiltinFunctionTool" if asynchronous else "BetaBuiltinFunctionTool"
    base: type = getattr(functions, name)
    return [_runnable(session, tool, base, functions.ToolError) for tool in session.tools()]


def tool_runner(session: ToolSession, client: Any, **params: Any) -> Any:
    """Start the SDK's tool runner on a session.

    Args:
        session: The session.
        client: ``Anthropic`` or ``AsyncAnthropic``.
        params: Of ``client.beta.messages.tool_runner``, without ``tools``.

    Raises:
        MissingExtraError: The SDK is not installed.
    """
    sdk = need("anthropic", "anthropic")
    asynchronous = isinstance(client, sdk.AsyncAnthropic)
    betas = [*dict.fromkeys([*params.pop("betas", ()), *session.betas])]
    if betas:
        params["betas"] = betas
    tools = runnable(session, asynchronous=asynchronous)
    watched = attach(session, client)
    runner = watched.beta.messages.tool_runner(tools=tools, **params)
    for tool in tools:
        tool.runner = runner
    return runner


def _runnable(
    session: ToolSession, definition: dict[str, Any], base: type, error: type[Exception]
) -> Any:
    name = definition["name"]

    def to_dict(_: Any) -> dict[str, Any]:
        return definition

    def told(self: Any, outcome: Outcome) -> Any:
        if name == SEARCH:
            _bring(session, self, base, error)
        if outcome.is_error:
            raise error(outcome.content)
        return outcome.content

    def call(self: Any, arguments: Any) -> Any:
        return told(self, session.call(name, arguments))

    async def call_async(self: Any, arguments: Any) -> Any:
        return told(self, await session.acall(name, arguments))

    method = call_async if "Async" in base.__name__ else call
    return type("DirectoryTool", (base,), {"to_dict": to_dict, "call": method, "runner": None})()


def _bring(session: ToolSession, tool: Any, base: type, error: type[Exception]) -> None:
    """Hand tools that come by value to the runner, which sends them with its next request."""
    for block in session.finder.changes():
        definition = block["tool"]["definition"]
        made = _runnable(session, definition, base, error)
        made.runner = tool.runner
        if tool.runner is not None and hasattr(tool.runner, "add_tools"):
            tool.runner.add_tools(made)
