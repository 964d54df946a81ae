"""Connections that wait neither for headers nor for a reader for ever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from local_backend._typing import override
from local_backend.server.errors import ApiError, error_body
from local_backend.server.settings import Settings


class Connection(H11Protocol):
    """One connection with limits; made by :func:`connections`."""

    limits: Settings
    new_id: Callable[[str], str]
    _waiting: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            transport.abort()
            return
        self._expect()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        _stop(self._waiting)
        _stop(self._stuck)
        super().connection_lost(exc)

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(self.limits.write_timeout_s, self._abort)

    @override
    def resume_writing(self) -> None:
        _stop(self._stuck)
        self._stuck = None
        super().resume_writing()

    @override
    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets an error of the same shape as all others."""
        del msg
        error = error_body(ApiError(400, "what came is no HTTP request"), self.new_id("req_"))
        body = json.dumps(error, separators=(",", ":")).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"request-id", error["request_id"].encode()),
            (b"connection", b"close"),
        ]
        events = (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _expect(self) -> None:
        """Give the headers of a request a time in which they must be complete."""
        is_between = self.cycle is None or self.cycle.response_complete
        if not is_between:
            _stop(self._waiting)
            self._waiting = None
        elif self._waiting is None:
            self._waiting = self.loop.call_later(self.limits.body_timeout_s, self._abort)

    def _abort(self) -> None:
        self.transport.abort()


def connections(settings: Settings, new_id: Callable[[str], str]) -> type[Connection]:
    """The class of connections under these limits; identities of errors come from ``new_id``."""
    more = {"limits": settings, "new_id": staticmethod(new_id)}
    return type("LimitedConnection", (Connection,), more)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
