"""Reads request bodies, and of a conversation that goes on only the part that is new.

A conversation sends its whole history every time. Where a body repeats the messages of an earlier
one byte for byte, those bytes are compared and not decoded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from cacheaudit.agent.rope import Rope, alike, common, rope

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

    data: Rope
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

    data: Rope
    fields: dict[str, Any]
    raw: dict[str, msgspec.Raw]
    base: History | None = None
    start: int = 0
    count: int = 0
    new: tuple[msgspec.Raw, ...] = ()

    def whole(self) -> dict[str, Any]:
        """Decode all of it."""
        found: dict[str, Any] = decode(bytes(self.data))
        return found

    @property
    def messages(self) -> list[msgspec.Raw]:
        """Every message as it came; none where the field is no list."""
        raw = self.raw.get("messages")
        if self.base is not None:
            raw = _decode_fields(bytes(self.data)).get("messages")
        try:
            return [] if raw is None else _decode_list(raw)
        except msgspec.DecodeError:
            return []


def read_body(data: bytes | Rope, known: Iterable[History] = ()) -> Body | None:
    """Decode a request body; ``None`` where it is no JSON object.

    Args:
        data: The body.
        known: Histories that it may go on from, the likeliest first.
    """
    data = rope(data)
    try:
        best: tuple[int, int, History] | None = None
        for history in known:
            found = _repeated(data, history)
            if found is not None and (best is None or found[1] > best[1]):
                best = (*found, history)
        body = None if best is None else _continued(data, *best)
        if body is not None:
            return body
        raw = _decode_fields(bytes(data))
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
    data = bytes(body.data)
    at = data.find(bytes(body.raw["messages"]))
    key = data.rfind(_KEY, 0, at)
    start = data.find(bytes(messages[0]), at)
    if min(at, key, start) < 0 or not _is_head(data[:key]):
        return None
    return _history(body.data, data[key:start], start, (), messages)


def _history(
    data: Rope,
    opening: bytes,
    start: int,
    ends: tuple[int, ...],
    new: Iterable[msgspec.Raw],
) -> History | None:
    """Find the messages one behind the other: between two of them there are no braces."""
    at = start + (ends[-1] if ends else 0)
    searched = rope(bytes(data)) if at < data.shared else data
    found = list(ends)
    for message in new:
        text = bytes(message)
        at = searched.find(text, at)
        if at < 0 or text[-1:] != b"}":
            return None
        at += len(text)
        found.append(at - start)
    return History(data, opening, start, tuple(found))


def _opened(data: Rope, history: History) -> int | None:
    """Return the offset of the first message, if the body opens its messages like a history."""
    head = history.start - len(history.opening)
    if data.cut(head, history.start) != history.opening:
        head = data.find(history.opening)
    return None if head < 0 else head + len(history.opening)


def _repeated(data: Rope, history: History) -> tuple[int, int] | None:
    """Return the offset of the first message, and how many messages of a history are repeated."""
    start = _opened(data, history)
    if start is None:
        return None
    shared = common(data, history.data) - start if start == history.start else 0
    if shared <= 0:
        # What stands before the messages differs.
        mine, old = memoryview(bytes(data))[start:], bytes(history.data)[history.start :]
        shared = alike(old, mine)
    count = bisect_right(history.ends, shared)
    return (start, count) if count else None


def _continued(data: Rope, start: int, count: int, history: History) -> Body | None:
    """Decode what stands before and behind the repeated messages; ``None`` where that fails."""
    head = data.cut(0, start - len(history.opening))
    if not _is_head(head):
        return None
    raw = _decode_fields(head + b'"messages":0}')
    # A number stands for the messages left out: what follows them, follows it.
    rest = _decode_fields(b'{"messages":[0' + data.cut(start + history.ends[count - 1]))
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
