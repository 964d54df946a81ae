"""Undoes what lies between a recorded HTTP body and its JSON: base64, compression, framing."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cacheaudit._lazy import need
from cacheaudit.errors import CorruptRecordError, MissingExtraError
from cacheaudit.ingest._fields import decode

MAX_BODY = 256 << 20
# So small that one step cannot unpack to more than memory holds.
_BROTLI_STEP = 1_024
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_HEADER_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


class UnpackError(CorruptRecordError):
    """A body cannot be unpacked; the message says why."""


def unbase64(text: str | bytes) -> bytes:
    """Decode base64, line breaks allowed.

    Raises:
        UnpackError: The text is no base64.
    """
    try:
        return base64.b64decode(text, validate=False)
    except (binascii.Error, ValueError) as error:
        raise UnpackError("body is not base64") from error


def decompress(data: bytes, encoding: str | None = None) -> bytes:
    """Undo a content encoding.

    Recorders differ in whether they keep the body compressed; so the first bytes decide and not the
    header, which only tells what cannot be recognised by content.

    Args:
        data: The body as recorded.
        encoding: Value of the ``content-encoding`` header.

    Raises:
        UnpackError: The body is damaged, too large when unpacked, or its encoding is not supported.
    """
    if data.startswith(_GZIP):
        return _inflate(data, 31)
    if data.startswith(_ZSTD):
        return _zstd(data)
    named = (encoding or "").lower()
    if "deflate" in named and not looks_like_text(data):
        try:
            return _inflate(data, 15)
        except UnpackError:
            return _inflate(data, -15)
    if "br" in [part.strip() for part in named.split(",")] and not looks_like_text(data):
        plain, is_whole = unbrotli([data])
        if not is_whole:
            raise UnpackError("compressed body is cut off")
        return b"".join(plain)
    return data


def looks_like_text(data: bytes) -> bool:
    """Whether bytes begin like JSON or an event stream."""
    return data[:64].lstrip()[:1] in (b"{", b"[") or data[:64].lstrip().startswith(
        (b"event:", b"data:", b"id:", b":", b"retry:")
    )


def unbrotli(pieces: Iterable[bytes]) -> tuple[list[bytes], bool]:
    """Decompress Brotli piece by piece, as far as it goes.

    Args:
        pieces: A body in any portions.

    Returns:
        What each piece brought, and whether the end was there.

    Raises:
        UnpackError: The body is damaged, too large when unpacked, or the extra is not installed.
    """
    try:
        module = need("brotli", "brotli")
    except MissingExtraError as error:
        raise UnpackError(str(error)) from error
    engine = module.Decompressor()
    found: list[bytes] = []
    whole = 0
    try:
        for piece in pieces:
            plain: list[bytes] = []
            for start in range(0, len(piece), _BROTLI_STEP):
                plain.append(engine.process(piece[start : start + _BROTLI_STEP]))
                whole += len(plain[-1])
                if whole > MAX_BODY:
                    raise UnpackError(f"body is over {MAX_BODY >> 20} MiB when unpacked")
            found.append(b"".join(plain))
        return found, bool(engine.is_finished())
    except module.error as error:
        raise UnpackError("compressed body is damaged") from error


def _inflate(data: bytes, window: int) -> bytes:
    engine = zlib.decompressobj(window)
    try:
        plain = engine.decompress(data, MAX_BODY)
    except zlib.error as error:
        raise UnpackError("compressed body is damaged") from error
    if engine.unconsumed_tail:
        raise UnpackError(f"body is over {MAX_BODY >> 20} MiB when unpacked")
    if not engine.eof:
        raise UnpackError("compressed body is cut off")
    return plain


def _zstd(data: bytes) -> bytes:
    try:
        module = need("zstandard", "zstd")
    except MissingExtraError as error:
        raise UnpackError(str(error)) from error
    try:
        with module.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            plain: bytes = reader.read(MAX_BODY + 1)
    except module.ZstdError as error:
        raise UnpackError("compressed body is damaged") from error
    if len(plain) > MAX_BODY:
        raise UnpackError(f"body is over {MAX_BODY >> 20} MiB when unpacked")
    return plain


def is_aws_stream(data: bytes, content_type: str = "") -> bool:
    """Whether a body is an ``application/vnd.amazon.eventstream``."""
    if "amazon.eventstream" in content_type:
        return True
    if len(data) < 16:
        return False
    total, headers, check = struct.unpack(">III", data[:12])
    return bool(16 <= total <= 1 << 24 and headers < total and zlib.crc32(data[:8]) == check)


def aws_events(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the events of an AWS event stream.

    Events of ``invoke-with-response-stream`` are unwrapped to the model's own; those of
    ``converse-stream`` come as ``{event name: payload}``.

    Raises:
        UnpackError: The stream is cut or damaged.
    """
    at = 0
    while at < len(data):
        if len(data) - at < 16:
            raise UnpackError("event stream is cut off")
        total, header_size, check = struct.unpack(">III", data[at : at + 12])
        if zlib.crc32(data[at : at + 8]) != check or total < 16 or at + total > len(data):
            raise UnpackError("event stream is cut off or damaged")
        headers = _aws_headers(data[at + 12 : at + 12 + header_size])
        payload = decode(data[at + 12 + header_size : at + total - 4])
        at += total
        if isinstance(payload, dict):
            yield _aws_event(headers.get(":event-type", ""), payload)


def _aws_event(name: str, payload: dict[str, Any]) -> dict[str, Any]:
    inner = payload.get("bytes")
    if isinstance(inner, str):
        event = decode(unbase64(inner))
        return event if isinstance(event, dict) else {}
    return {name: payload} if name else payload


def _aws_headers(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode("ascii", "replace"), data[name_end]
            at = name_end + 1
            if kind in (6, 7):
                (size,) = struct.unpack(">H", data[at : at + 2])
                found[name] = data[at + 2 : at + 2 + size].decode(errors="replace")
                at += 2 + size
            else:
                at += _HEADER_SIZES[kind]
    except (IndexError, KeyError, struct.error):
        return found
    return found


def header(headers: Mapping[str, Any] | list[Any] | None, name: str) -> str | None:
    """Return one header's value, by lower-case name, from any of the shapes that recorders use.

    Args:
        headers: ``{name: value}``, ``{name: [values]}`` or ``[{"name": …, "value": …}]``.
        name: Name in lower case.
    """
    pairs: Iterator[tuple[Any, Any]]
    if isinstance(headers, Mapping):
        pairs = iter(headers.items())
    elif isinstance(headers, list):
        pairs = (
            (item.get("name"), item.get("value")) for item in headers if isinstance(item, dict)
        )
    else:
        return None
    for key, value in pairs:
        if isinstance(key, str) and key.lower() == name:
            first = value[0] if isinstance(value, list) and value else value
            if isinstance(first, bytes):
                return first.decode(errors="replace")
            return first if isinstance(first, str) else None
    return None


def json_object(data: bytes | str) -> dict[str, Any] | None:
    """Decode a body that holds one JSON object."""
    value = decode(data)
    return value if isinstance(value, dict) else None
