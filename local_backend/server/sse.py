"""Streams of events that notice when nobody listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from local_backend._typing import override
from local_backend.server.errors import ClientGoneError
from local_backend.server.limits import gone
from local_backend.server.service import Service


class EventStream(Response):
    """An answer in pieces.

    Args:
        service: Whose limits and counters apply.
        request: What is answered.
        held: What must be left when the stream ends, however it ends.
        chunks: The pieces.
        ping: Sent where there is silence for too long; empty for nothing.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        service: Service,
        request: Request,
        held: AsyncExitStack,
        chunks: AsyncIterator[bytes],
        ping: bytes = b"",
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._service = service
        self._request = request
        self._held = held
        self._chunks = chunks
        self._ping = ping

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        metrics = self._service.metrics
        metrics.open_streams += 1
        leaving = asyncio.ensure_future(gone(self._request))
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            while (chunk := await self._next(leaving, send)) is not None:
                await _write(send, chunk)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            metrics.open_streams -= 1
            await _end(leaving)
            await self._held.aclose()

    async def _next(self, leaving: asyncio.Future[None], send: Send) -> bytes | None:
        """The next piece, or None at the end; pings while it takes long."""
        coming = asyncio.ensure_future(anext(self._chunks, None))
        try:
            while True:
                both: set[asyncio.Future[Any]] = {coming, leaving}
                await asyncio.wait(
                    both,
                    timeout=self._service.settings.ping_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if leaving.done():
                    raise ClientGoneError("the client left while its answer was written")
                if coming.done():
                    return coming.result()
                if self._ping:
                    await _write(send, self._ping)
        finally:
            await _end(coming)


async def _write(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait until it is over, so that nothing it uses is in use."""
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
