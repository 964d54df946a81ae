"""Reads request bodies, and of a conversation that goes on only the part that is new.

A conversation sends its whole history every time. Where a body repeats the messages of an earlier
one byte for byte, those bytes are compared and not decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

_BULK: Final = frozenset({"messages", "tools", "system", "input", "contents", "instructions"})
_KEY: Final = b'"messages"'

decode: Final = msgspec.json.Decoder().decode
_decode_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class History(msgspec.Struct, frozen=True):
    """Where the messages of a body lie.

    Attributes:
        data: The body.
        opening: Bytes from the key to the first message: ``"messages":[``.
        start: Offset of the first message.
        ends: End of each message, counted from ``start``.
    """

    data: bytes
    opening: bytes
    start: int
    ends: tuple[int, ...]


class Body(msgspec.Struct, frozen=True):
    """A request body, its small fields decoded.

    Attributes:
        data: The body as sent.
        fields: Every field but the bulk of the prompt.
        raw: Every field as it came; without ``messages`` where ``base`` is there.
        base: History of an earlier body whose first messages this one repeats.
        start: Offset of the first message, where ``base`` is there.
        count: How many messages it repeats.
        new: The messages behind them.
    """

    data: bytes
    fields: dict[str, Any]
    raw: dict[str, msgspec.Raw]
    base: History | None = None
    start: int = 0
    count: int = 0
    new: tuple[msgspec.Raw, ...] = ()

    def whole(self) -> dict[str, Any]:
        """Decode all of it."""
        found: dict[str, Any] = decode(self.data)
        return found

    @property
    def messages(self) -> list[msgspec.Raw]:
        """Every message as it came; none where the field is no list."""
        raw = self.raw.get("messages")
        if self.base is not None:
            raw = _decode_fields(self.data).get("messages")
        try:
            return [] if raw is None else _decode_list(raw)
        except msgspec.DecodeError:
            return []


def read_body(data: bytes, known: Iterable[History] = ()) -> Body | None:
    """Decode a request body; ``None`` where it is no JSON object.

    Args:
        data: The body.
        known: Histories that it may go on from, the likeliest first.
    """
    try:
        best: tuple[int, int, History] | None = None
        for history in known:
            found = _repeated(data, history)
            if found is not None and (best is None or found[1] > best[1]):
                best = (*found, history)
        body = None if best is None else _continued(data, *best)
        if body is not None:
            return body
        raw = _decode_fields(data)
        return Body(data, _small(raw), raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def history_of(body: Body) -> History | None:
    """Return where the messages of a body lie; ``None`` where there is no saying."""
    if body.base is not None:
        ends = body.base.ends[: body.count]
        return _history(body.data, body.base.opening, body.start, ends, body.new)
    messages = body.messages
    if not messages:
        return None
    array = bytes(body.raw["messages"])
    at = body.data.find(array)
    key = body.data.rfind(_KEY, 0, at)
    first = bytes(messages[0])
    start = body.data.find(first, at)
    if min(at, key, start) < 0 or not _is_head(body.data[:key]):
        return None
    return _history(body.data, body.data[key:start], start, (), messages)


def _history(
    data: bytes,
    opening: bytes,
    start: int,
    ends: tuple[int, ...],
    new: Iterable[msgspec.Raw],
) -> History | None:
    """Find the messages one behind the other: between two of them there are no braces."""
    at = start + (ends[-1] if ends else 0)
    found = list(ends)
    for message in new:
        text = bytes(message)
        at = data.find(text, at)
        if at < 0 or text[-1:] != b"}":
            return None
        at += len(text)
        found.append(at - start)
    return History(data, opening, start, tuple(found))


def _opened(data: bytes, history: History) -> int | None:
    """Return the offset of the first message, if the body opens its messages like a history."""
    head = history.start - len(history.opening)
    if not data.startswith(history.opening, head):
        head = data.find(history.opening)
    return None if head < 0 else head + len(history.opening)


def _repeated(data: bytes, history: History) -> tuple[int, int] | None:
    """Return the offset of the first message, and how many messages of a history are repeated."""
    start = _opened(data, history)
    if start is None:
        return None
    old, ends = history.data, history.ends
    low, high, same = 0, len(ends), 0
    while low < high:
        middle = (low + high + 1) // 2
        end = ends[middle - 1]
        if data.startswith(old[history.start + same : history.start + end], start + same):
            low, same = middle, end
        else:
            high = middle - 1
    return (start, low) if low else None


def _continued(data: bytes, start: int, count: int, history: History) -> Body | None:
    """Decode what stands before and behind the repeated messages; ``None`` where that fails."""
    head = data[: start - len(history.opening)]
    if not _is_head(head):
        return None
    raw = _decode_fields(head + b'"messages":0}')
    # A number stands for the messages left out: what follows them, follows it.
    rest = _decode_fields(b'{"messages":[0' + data[start + history.ends[count - 1] :])
    messages = bytes(rest.pop("messages"))
    if not messages.startswith(b"[0"):
        return None  # the field stands there twice
    raw.update(rest)
    del raw["messages"]
    new = tuple(_decode_list(messages)[1:])
    return Body(data, _small(raw), raw, history, start, count, new)


def _is_head(head: bytes) -> bool:
    """Whether bytes are the beginning of an object, up to a key of the outermost level."""
    try:
        _decode_fields(head + b'"messages":0}')
    except msgspec.DecodeError:
        return False
    return True


def _small(raw: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    return {name: decode(value) for name, value in raw.items() if name not in _BULK}
