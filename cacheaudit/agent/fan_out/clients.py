"""How one request of a fan-out is sent through an Anthropic client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from cacheaudit.agent.fan_out.send import AsyncSend, Began, Send
from cacheaudit.agent.keep_alive.economy import Ineligible
from cacheaudit.agent.keep_alive.replay import replay

Purpose = Callable[[str], AbstractContextManager[Any]]


def sender(client: Any, purpose: Purpose, *, warm_up: bool = False) -> Send:
    """Return what sends through a synchronous client.

    A request that others wait for is streamed, since only then is its beginning seen; the response
    that comes back is the whole message all the same. With ``warm_up`` its prefix is written by
    a request of its own that generates nothing, where the provider takes one.

    Args:
        client: The client.
        purpose: Opens a scope with a purpose.
        warm_up: Send that request.
    """

    def send(body: Mapping[str, Any], began: Began | None) -> Any:
        messages = _messages(client, body)
        if began is None:
            return messages.create(**body)
        warm = _warming(body) if warm_up else None
        if warm is not None:
            with purpose("warm_up"):
                messages.create(**warm)
            began()
            return messages.create(**body)
        with messages.stream(**body) as events:
            for _ in events:
                began()
            return events.get_final_message()

    return send


def async_sender(client: Any, purpose: Purpose, *, warm_up: bool = False) -> AsyncSend:
    """Return what sends through an asynchronous client; see :func:`sender`."""

    async def send(body: Mapping[str, Any], began: Began | None) -> Any:
        messages = _messages(client, body)
        if began is None:
            return await messages.create(**body)
        warm = _warming(body) if warm_up else None
        if warm is not None:
            with purpose("warm_up"):
                await messages.create(**warm)
            began()
            return await messages.create(**body)
        async with messages.stream(**body) as events:
            async for _ in events:
                began()
            return await events.get_final_message()

    return send


def _messages(client: Any, body: Mapping[str, Any]) -> Any:
    return client.beta.messages if "betas" in body else client.messages


def _warming(body: Mapping[str, Any]) -> dict[str, Any] | None:
    made = replay(body)
    return None if isinstance(made, Ineligible) or made.output_tokens else made.body
