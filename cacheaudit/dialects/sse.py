"""Server-sent events: bytes in any portions to events, without loss at the seams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

LONGEST: Final = 64 << 20
_BOM: Final = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One event.

    Attributes:
        data: Its data lines, joined by line feeds.
        event: Its name, where it has one.
        id: Its id, where it has one.
    """

    data: str
    event: str | None = None
    id: str | None = None

    def json(self) -> dict[str, Any] | None:
        """Decode the data; ``None`` for the end mark ``[DONE]`` and for anything but an object."""
        try:
            value = msgspec.json.decode(self.data)
        except (msgspec.DecodeError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


class SseDecoder:
    """Cuts a byte stream into events; line ends may be LF, CR or CRLF, and chunks may end anywhere.

    Kinder than the standard in one point: an event that the end of the stream cuts off before
    its blank line is still given out by :meth:`close`, since recordings often lose that line.

    Args:
        longest: Events of more bytes are dropped, so that memory is bounded.

    Attributes:
        dropped: Number of events dropped.
    """

    def __init__(self, longest: int = LONGEST) -> None:
        self.dropped = 0
        self._longest = longest
        self._held = 0  # bytes of the open event
        self._dropping = False
        self._rest: list[bytes] = []
        self._data: list[str] = []
        self._event: str | None = None
        self._id: str | None = None
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take bytes; return the events that they complete."""
        if not chunk:
            return []
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
        self._after_cr = chunk[-1:] == b"\r" if chunk else False
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if len(lines) > 1:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest.clear()
        rest = lines.pop()
        found = [event for line in lines if (event := self._line(line)) is not None]
        if rest:
            self._rest.append(rest)
            self._hold(len(rest))
        return found

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held <= self._longest:
            return
        self.dropped += not self._dropping
        self._dropping = True
        self._held = 0
        self._data.clear()
        self._rest[:-1] = []
        self._rest[:] = [piece[:1] for piece in self._rest]  # what is left shows: not blank

    def close(self) -> list[SseEvent]:
        """End the stream; return the event that was still open, if any."""
        last = b"".join(self._rest)
        self._rest = []
        found = [self._line(last)] if last else []
        found.append(self._line(b""))
        return [event for event in found if event is not None]

    def _line(self, raw: bytes) -> SseEvent | None:
        if self._at_start:
            self._at_start = False
            raw = raw.removeprefix(_BOM)
        if not raw:
            self._held, self._dropping = 0, False
            return self._dispatch()
        if self._dropping:
            return None
        name, _, value = raw.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._hold(len(raw))
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> SseEvent | None:
        data, event = self._data, self._event
        self._data, self._event = [], None
        return SseEvent("\n".join(data), event, self._id) if data else None


def decode_sse(chunks: Iterable[bytes], decoder: SseDecoder | None = None) -> Iterator[SseEvent]:
    """Decode a whole stream given as any portions of bytes."""
    decoder = decoder or SseDecoder()
    for chunk in chunks:
        yield from decoder.feed(chunk)
    yield from decoder.close()
