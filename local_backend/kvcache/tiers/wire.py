"""The words between an engine and the process that keeps pages for it."""

from __future__ import annotations

import socket
import struct
from enum import IntEnum

from local_backend.errors import TierError

# One frame: what is meant, and how many bytes follow.
_FRAME = struct.Struct("<4sBI")
_MAGIC = b"KVT1"
MAX_BODY = 256 * 1024 * 1024


class Word(IntEnum):
    """What a frame means."""

    HELD = 1
    LOAD = 2
    STORE = 3
    COUNT = 4
    YES = 16
    NO = 17
    BAD = 18


def send(connection: socket.socket, word: Word, body: bytes = b"") -> None:
    """Write one frame."""
    connection.sendall(_FRAME.pack(_MAGIC, word, len(body)) + body)


def receive(connection: socket.socket) -> tuple[Word, bytes] | None:
    """Read one frame; None where the other side is done.

    Raises:
        TierError: It is no frame, is too long, or ends early.
    """
    header = _read(connection, _FRAME.size)
    if not header:
        return None
    if len(header) < _FRAME.size:
        raise TierError("the connection ended inside a frame")
    magic, word, size = _FRAME.unpack(header)
    if magic != _MAGIC or size > MAX_BODY or word not in list(Word):
        raise TierError("the other side does not speak this protocol")
    body = _read(connection, size)
    if len(body) < size:
        raise TierError("the connection ended inside a frame")
    return Word(word), body


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
