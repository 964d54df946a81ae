"""One response of a Claude Code transcript while it is put together from its lines."""

from __future__ import annotations

from typing import Any

import msgspec

from cacheaudit.ingest.claude_wire import WireUsage
from cacheaudit.model.call import Boundary


class Response(msgspec.Struct, gc=False):
    """One response of a transcript, put together from its lines.

    Attributes:
        line: Number of its first line.
        root: The sidechain that it belongs to, by the line that this began with.
        wire: The usage with the highest output so far, or ``raw_usage`` where it is unusual.
        output: That output; -1 before there is one.
        user_at: Time of the newest user line before it.
        boundaries: What was recorded between the response before and this one.
        known_tail: What its last line said from the stop reason to its own id.
        far: How far before the end of a line that repeats it this begins; 0 where there is none.
    """

    message_id: str
    request_id: str | None
    line: int
    model: str | None = None
    session: str | None = None
    agent: str | None = None
    version: str | None = None
    sidechain: bool = False
    first_at: str | None = None
    last_at: str | None = None
    stop_reason: str | None = None
    diagnostics: bytes | None = None
    known_tail: bytes | bytearray = b""
    far: int = 0
    root: str | None = None
    wire: WireUsage | None = None
    raw_usage: dict[str, Any] | None = None
    output: int = -1
    user_at: str | None = None
    cost: bytes | None = None
    boundaries: tuple[Boundary, ...] = ()
