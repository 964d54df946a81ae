"""Small readings of a Claude Code transcript that several ways of its scan share."""

from __future__ import annotations

from typing import Any

import msgspec

from cacheaudit.ingest.claude_wire import PlainLine, WireUsage, decode_plain, decode_usage

STAMP = b'"timestamp":"'

Bytes = bytes | bytearray
decode_any = msgspec.json.Decoder().decode
BAD = (msgspec.DecodeError, RecursionError)


def either(usage: msgspec.Raw) -> tuple[WireUsage | None, dict[str, Any] | None]:
    """Decode a usage object by its usual fields, or as it is where a type is unusual."""
    try:
        return decode_usage(usage), None
    except BAD:
        pass
    try:
        raw = decode_any(usage)
    except BAD:  # a number beyond any range
        return None, None
    return None, raw if isinstance(raw, dict) else None


def last_stamp(data: Bytes, start: int, end: int) -> str | None:
    """Find a line's own time near its end without decoding it.

    Behind it stands one closing brace and no opening one, so the outermost object holds it.
    """
    if end - start > 39 and data.startswith(STAMP, end - 39):  # the very end, as clients write it
        stamp = data[end - 26 : end]
        if stamp.find(b'"') == 24 and stamp.endswith(b"}"):
            return stamp[:24].decode(errors="replace")
    at = data.rfind(STAMP, max(start, end - 400), end) + 13
    if at < 13:
        return None
    stop = data.find(b'"', at, end)
    if data.find(b"}", stop, end - 1) >= 0 or data.find(b"{", stop, end) >= 0:
        return None
    return data[at:stop].decode(errors="replace")


def later(a: str | None, b: str | None) -> str | None:
    """Return the later of two times of one format."""
    return max(a, b) if a is not None and b is not None else a or b


def plain_line(line: Bytes) -> PlainLine | None:
    """Decode what any line has; ``None`` where it is no such object."""
    try:
        return decode_plain(line)
    except BAD:
        return None


def is_sound(line: Bytes) -> bool:
    """Whether a line is JSON as a whole."""
    try:
        decode_any(line)
    except BAD:
        return False
    return True


def usage_object(data: Bytes | msgspec.Raw, at: int, end: int) -> dict[str, Any] | None:
    """Decode the usage object of a message whose line goes on from ``at`` to ``end``.

    ``data`` can be that object itself.

    Returns:
        ``None`` where a field that is not looked at cannot be decoded.
    """
    line = data if isinstance(data, msgspec.Raw) else b'{"message":{' + data[at:end]
    try:
        value = decode_any(line)
    except BAD:
        return None
    usage = value if line is data else value["message"].get("usage")
    return usage if isinstance(usage, dict) else None
