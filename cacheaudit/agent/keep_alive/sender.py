"""Sends a request once more through the client that sent it, outside the conversation."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Mapping
from typing import Any, Final, Protocol

from cacheaudit.agent.scope import Scope, enter, leave

_TIMEOUT: Final = 60.0


class Sender(Protocol):
    """Sends a refresh and returns the response's JSON."""

    def send(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], scope: Scope
    ) -> Any:
        """Send it once and wait; an exception means that it failed.

        Args:
            url: Where to.
            body: What to send.
            headers: Headers beside the client's own.
            scope: What the call is recorded as.
        """
        ...


class Origin:
    """The client that requests come from: held weakly here, and by what may still be sent again.

    Args:
        owner: Whose scopes tell what a request is for.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._client: weakref.ref[Any] | None = None
        self._is_async = False

    def bind(self, client: Any) -> None:
        """Say which client it is."""
        self._client = weakref.ref(client)
        self._is_async = inspect.iscoroutinefunction(getattr(client, "post", None))

    def of(self, attempt: object) -> Sender | None:
        """Return what can send an attempt again; called where it is sent itself.

        Returns:
            ``None`` where nothing can be sent from outside: no client, or an event loop other than
            asyncio's.
        """
        del attempt
        client = None if self._client is None else self._client()
        if client is None:
            return None
        if not self._is_async:
            return _Direct(client, self._owner)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        return _OnLoop(client, self._owner, loop)


class _Direct:
    """A synchronous client, used from a thread of our own."""

    def __init__(self, client: Any, owner: str) -> None:
        self._client = client
        self._owner = owner

    def send(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], scope: Scope
    ) -> Any:
        token = enter(self._owner, scope)
        try:
            return self._client.post(
                url, cast_to=object, body=dict(body), options=_options(headers)
            )
        finally:
            leave(token)


class _OnLoop:
    """An asynchronous client, used on the event loop that it was used on before."""

    def __init__(self, client: Any, owner: str, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._owner = owner
        self._loop = weakref.ref(loop)

    def send(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], scope: Scope
    ) -> Any:
        loop = self._loop()
        if loop is None or loop.is_closed() or not loop.is_running():
            raise LookupError("the event loop is gone")
        made = self._post(url, body, headers, scope)
        try:
            future = asyncio.run_coroutine_threadsafe(made, loop)
        except RuntimeError:
            made.close()
            raise
        return future.result(_TIMEOUT + 5)

    async def _post(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], scope: Scope
    ) -> Any:
        enter(self._owner, scope)  # the task has a context of its own
        return await self._client.post(
            url, cast_to=object, body=dict(body), options=_options(headers)
        )


def _options(headers: Mapping[str, str]) -> dict[str, Any]:
    return {"headers": dict(headers), "max_retries": 0, "timeout": _TIMEOUT}
