"""Bodies of which only the end is kept: the rest is the beginning of one that came before.

A conversation sends its whole history every time. To hold on to each body until it is written would
keep megabytes alive, and have the caller's next body laid out in memory that nobody touched before,
which takes longer than all the rest of a hook. So the caller's thread compares a body with an
earlier one of its lane, which is a matter of microseconds, and lets it go.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

import msgspec

# Shorter bodies are kept as they are.
_SHORT: Final = 1 << 14
# A body that has more than this part of its own becomes one that others are compared with.
_OWN: Final = 8
_LINES: Final = 64
_BASES: Final = 4
_BYTES: Final = 64 << 20
_STEP: Final = 64


class Rope(msgspec.Struct, frozen=True, gc=False):
    """A body: the first ``shared`` bytes of ``base``, and ``tail``."""

    base: bytes
    shared: int
    tail: bytes = b""

    def __len__(self) -> int:
        return self.shared + len(self.tail)

    def __bytes__(self) -> bytes:
        """Put it together."""
        if not self.tail and self.shared == len(self.base):
            return self.base
        return b"".join((memoryview(self.base)[: self.shared], self.tail))

    def cut(self, start: int, stop: int | None = None) -> bytes:
        """Return a part of it, as a slice of bytes with offsets from the front."""
        stop = len(self) if stop is None else min(stop, len(self))
        if start >= self.shared:
            return self.tail[start - self.shared : stop - self.shared]
        if stop <= self.shared:
            return self.base[start:stop]
        return self.base[start : self.shared] + self.tail[: stop - self.shared]

    def find(self, text: bytes, start: int = 0) -> int:
        """Return where a text stands at or behind an offset; -1: nowhere."""
        if start < self.shared:
            return bytes(self).find(text, start) if self.tail else self.base.find(text, start)
        found = self.tail.find(text, start - self.shared)
        return found if found < 0 else found + self.shared


def rope(data: bytes | Rope) -> Rope:
    """Return bytes as a rope."""
    return data if isinstance(data, Rope) else Rope(data, len(data))


def common(one: Rope, other: Rope) -> int:
    """Count the leading bytes that two ropes share."""
    if one.base is not other.base:
        return alike(bytes(one), bytes(other))
    if one.shared > other.shared:
        one, other = other, one
    shared, middle = one.shared, memoryview(other.base)[one.shared : other.shared]
    found = alike(one.tail, middle)
    if found == len(middle):
        found += alike(one.tail[found:], other.tail)
    return shared + found


def alike(one: bytes, other: bytes | memoryview, hint: int = 0) -> int:
    """Count the leading bytes that two texts share; nothing is copied.

    Args:
        one: A text.
        other: Another one.
        hint: About how many are expected.
    """
    view, limit, low = memoryview(other), min(len(one), len(other)), 0
    if 0 < hint <= limit and one.startswith(view[:hint]):
        low = hint
    step = _STEP
    while low < limit and one.startswith(view[low : low + step], low):
        low = min(low + step, limit)
        step *= 4
    high = min(low + step, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(view[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


class _Base:
    """A body that others are compared with, and how much the last one shared with it."""

    __slots__ = ("data", "hint")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.hint = 0


class Packer:
    """Makes ropes of bodies, by what it has seen of their lines. Safe to use from many threads.

    Args:
        lines: Lines of which bodies are kept.
        limit: Bytes of bodies that are kept.
    """

    def __init__(self, lines: int = _LINES, limit: int = _BYTES) -> None:
        self._most = lines
        self._limit = limit
        self._lock = threading.Lock()
        self._lines: OrderedDict[object, tuple[_Base, ...]] = OrderedDict()
        self._bytes = 0

    def pack(self, line: object, body: bytes) -> Rope:
        """Return a body as the end of another one, where it has little of its own.

        Args:
            line: What bodies of one conversation have in common.
            body: The body.
        """
        if len(body) < _SHORT:
            return Rope(body, len(body))
        known = self._lines.get(line, ())
        for base in reversed(known):
            shared = alike(body, base.data, base.hint)
            if (len(body) - shared) * _OWN <= len(body):
                base.hint = shared
                return Rope(base.data, shared, body[shared:])
        self._keep(line, body)
        return Rope(body, len(body))

    def _keep(self, line: object, body: bytes) -> None:
        with self._lock:
            known = (*self._lines.get(line, ()), _Base(body))
            self._bytes += len(body)
            while len(known) > _BASES:
                self._bytes -= len(known[0].data)
                known = known[1:]
            self._lines[line] = known
            self._lines.move_to_end(line)
            while len(self._lines) > self._most or (self._bytes > self._limit and self._lines):
                _, gone = self._lines.popitem(last=False)
                self._bytes -= sum(len(base.data) for base in gone)
