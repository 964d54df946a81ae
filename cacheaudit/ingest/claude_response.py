"""One response of a Claude Code transcript while it is put together from its lines."""

from __future__ import annotations

from typing import Any

from cacheaudit.ingest.claude_wire import WireUsage
from cacheaudit.model.call import Boundary


class Response:
    """One response of a transcript, put together from its lines."""

    __slots__ = (
        "agent",
        "boundaries",
        "cost",
        "diagnostics",
        "far",
        "first_at",
        "known_tail",
        "last_at",
        "line",
        "message_id",
        "model",
        "output",
        "raw_usage",
        "request_id",
        "root",
        "session",
        "sidechain",
        "stop_reason",
        "user_at",
        "version",
        "wire",
    )

    def __init__(self, message_id: str, request_id: str | None, line: int) -> None:
        self.message_id = message_id
        self.request_id = request_id
        self.line = line
        self.model: str | None = None
        self.session: str | None = None
        self.agent: str | None = None
        self.version: str | None = None
        self.sidechain = False
        self.root: str | None = None
        self.wire: WireUsage | None = None
        self.raw_usage: dict[str, Any] | None = None
        self.output = -1
        self.first_at: str | None = None
        self.last_at: str | None = None
        self.user_at: str | None = None
        self.stop_reason: str | None = None
        self.diagnostics: bytes | None = None
        self.cost: bytes | None = None
        self.boundaries: tuple[Boundary, ...] = ()
        # What its last line said from the stop reason to the request id, or to its own id: then
        # ``far`` is how far before the end of a line of that length it begins.
        self.known_tail: bytes | bytearray = b""
        self.far = 0
