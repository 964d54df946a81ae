"""A fan-out as part of an audit: which client sends, and as what each call is recorded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from cacheaudit.agent.fan_out.clients import async_sender, sender
from cacheaudit.agent.fan_out.layout import Layout, layout
from cacheaudit.agent.fan_out.plain import plain
from cacheaudit.agent.fan_out.send import (
    AsyncSend,
    Enter,
    FanOutResult,
    Send,
    asend_all,
    check,
    send_all,
)
from cacheaudit.agent.plan import new_id
from cacheaudit.agent.scope import current, enter, nested
from cacheaudit.errors import UsageError
from cacheaudit.ingest.endpoints import endpoint_of


class FanOut(msgspec.Struct, frozen=True, kw_only=True):
    """How a fan-out is sent.

    Attributes:
        concurrency: Most requests on their way at once.
        mark: Put a cache marker where the requests part.
        order: Send one request first, and the others when its response has begun.
        warm_up: Write the common prefix by a request of its own instead, which generates nothing.
        least: Tokens from which a common prefix is worth that; ``None``: the model's minimum.
        return_exceptions: Put exceptions in the places of responses instead of raising the first.
    """

    concurrency: int = 8
    mark: bool = True
    order: bool = True
    warm_up: bool = False
    least: int | None = None
    return_exceptions: bool = False


class FanOutService:
    """Sends fan-outs.

    Args:
        owner: Whose scopes tell what calls are for.
        now: The clock.
        purpose: Opens a scope with a purpose.
    """

    def __init__(
        self,
        owner: str,
        now: Callable[[], float],
        purpose: Callable[[str], AbstractContextManager[Any]],
    ) -> None:
        self._owner = owner
        self._now = now
        self._purpose = purpose

    def run(
        self,
        requests: Sequence[Mapping[str, Any]],
        settings: FanOut,
        client: Any = None,
        send: Send | None = None,
    ) -> FanOutResult:
        """Send requests with threads; see :meth:`cacheaudit.CacheAudit.fan_out`."""
        planned = self._planned(requests, settings, client if send is None else None)
        if send is None:
            send = sender(_need(client, is_async=False), self._purpose, warm_up=settings.warm_up)
        return send_all(
            planned,
            send,
            concurrency=settings.concurrency,
            return_exceptions=settings.return_exceptions,
            enter=self._lanes(),
        )

    async def run_async(
        self,
        requests: Sequence[Mapping[str, Any]],
        settings: FanOut,
        client: Any = None,
        send: AsyncSend | None = None,
    ) -> FanOutResult:
        """Send requests as tasks; see :meth:`cacheaudit.CacheAudit.afan_out`."""
        planned = self._planned(requests, settings, client if send is None else None)
        if send is None:
            client = _need(client, is_async=True)
            send = async_sender(client, self._purpose, warm_up=settings.warm_up)
        return await asend_all(
            planned,
            send,
            concurrency=settings.concurrency,
            return_exceptions=settings.return_exceptions,
            enter=self._lanes(),
        )

    def _planned(
        self, requests: Sequence[Mapping[str, Any]], settings: FanOut, client: Any
    ) -> Layout:
        check(requests, settings.concurrency)
        endpoint = endpoint_of(str(getattr(client, "base_url", "")) or None)
        provider = endpoint.provider if endpoint.provider != "local" else None
        if provider is None and hasattr(client, "messages"):
            provider = "anthropic"  # whoever answers, this is the API that the client speaks
        return layout(
            [plain(request) for request in requests],
            mark=settings.mark,
            order=settings.order,
            least=settings.least,
            provider=provider,
            surface=endpoint.surface,
            at=self._now(),
        )

    def _lanes(self) -> Enter | None:
        """Give every request a lane of its own, where a session is open."""
        outer = current(self._owner)
        if outer.session is None:
            return None
        name = f"fan-out-{new_id()[:6]}"

        def open_lane(index: int) -> None:
            lane = nested(outer, f"{name}-{index}", task=None, purpose=outer.purpose, fresh=False)
            enter(self._owner, lane)

        return open_lane


def _need(client: Any, *, is_async: bool) -> Any:
    """Return the client, if it is one to send with.

    Raises:
        UsageError: There is none, or it is of the other kind.
    """
    name = "afan_out" if is_async else "fan_out"
    if client is None or not hasattr(client, "messages"):
        raise UsageError(
            f"{name}: there is no client to send with.",
            "Wrap one first, or give client=… or send=….",
        )
    if inspect.iscoroutinefunction(getattr(client, "post", None)) is not is_async:
        other = "fan_out" if is_async else "afan_out"
        raise UsageError(f"{name}: {type(client).__name__} is of the other kind.", f"Use {other}.")
    return client
