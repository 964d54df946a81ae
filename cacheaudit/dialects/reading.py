"""What every dialect needs: reading counts that may have any type, and making disjoint parts.

The rule for contradictions: numbers that can all be true together are kept; where no reading
makes them all true, those that depend on the contradiction become unknown, and a flag says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cacheaudit.model.usage import (
    FLAG_BAD_TYPE,
    FLAG_CACHE_OVER_INPUT,
    FLAG_FIELDS_DISAGREE,
    FLAG_NEGATIVE,
    FLAG_SPLIT,
    FLAG_SPLIT_UNKNOWN,
    FLAG_TOTAL,
    Usage,
    add,
)

# No request has this many tokens; larger numbers are damage, and would not fit a database column.
LARGEST: Final = 2**53
_LONGEST_TEXT: Final = 40
_DOTTED: Final = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+\Z")
EMPTY: Final[Mapping[str, Any]] = {}
_TTL_NAMES: Final = {
    "5m": "5m",
    "300s": "5m",
    "1h": "1h",
    "60m": "1h",
    "3600s": "1h",
    "30m": "30m",
    "12h": "12h",
}


class Writes(NamedTuple):
    """Tokens written to a cache, by lifetime; ``other`` where the record does not tell it."""

    m5: int | None = None
    h1: int | None = None
    m30: int | None = None
    h12: int | None = None
    other: int | None = None

    @property
    def total(self) -> int | None:
        """Sum of what is known."""
        return add(*self)


NO_WRITES: Final = Writes()


class Reader:
    """Reads counts out of one record and remembers what was wrong with it.

    Args:
        text_is_normal: Numbers written as text (CSV, OTLP) are not a fault of the record.

    Attributes:
        flags: What was wrong so far.
        damaged: A count of the input side was there but could not be read.
    """

    __slots__ = ("_text_is_normal", "damaged", "flags")

    def __init__(self, *, text_is_normal: bool = False) -> None:
        self.flags: set[str] = set()
        self.damaged = False
        self._text_is_normal = text_is_normal

    def count(self, value: Any) -> int | None:
        """Read one count; ``None`` where it is absent, negative or no whole number."""
        if value is None:
            return None
        if type(value) is not int:
            if self._text_is_normal and isinstance(value, str) and not value.strip():
                return None
            value = _whole(value)
            if value is None or not self._text_is_normal:
                self.flags.add(FLAG_BAD_TYPE)
            if value is None:
                self.damaged = True
                return None
        if 0 <= value <= LARGEST:
            return int(value)
        self.flags.add(FLAG_NEGATIVE if value < 0 else FLAG_BAD_TYPE)
        self.damaged = True
        return None

    def aside(self, value: Any) -> int | None:
        """Read a count that the input side does not rest on, such as output."""
        damaged = self.damaged
        number = self.count(value)
        self.damaged = damaged
        return number

    def first(self, record: Mapping[str, Any], *names: str) -> int | None:
        """Read one count that goes by several names; differing values are flagged, never added."""
        found: int | None = None
        damaged = self.damaged
        for name in names:
            value = record.get(name)
            if value is not None:
                found = self.agreed(found, self.count(value))
        if found is not None:
            self.damaged = damaged
        return found

    def first_aside(self, record: Mapping[str, Any], *names: str) -> int | None:
        """As :meth:`first`, for a count that the input side does not rest on."""
        damaged = self.damaged
        number = self.first(record, *names)
        self.damaged = damaged
        return number

    def agreed(self, one: int | None, other: int | None) -> int | None:
        """Return what two fields for one thing say; the first wins, a difference is flagged."""
        if one is None:
            return other
        if other is not None and one != other:
            self.flags.add(FLAG_FIELDS_DISAGREE)
        return one

    def section(self, record: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
        """Return a nested object, or an empty one; anything else there is flagged."""
        for name in names:
            value = record.get(name)
            if isinstance(value, dict):
                return value
            if value is not None:
                self.flags.add(FLAG_BAD_TYPE)
        return EMPTY

    def writes(self, total: int | None, labelled: Writes) -> tuple[Writes, bool]:
        """Fit a total of writes and their split by lifetime together.

        Returns:
            The writes, and whether they are certain. A total above the split leaves the rest in
            ``other``; a total below it leaves nothing certain.
        """
        split = labelled.total
        if total is None or split is None:
            if split is not None:
                return labelled, True
            return (NO_WRITES if total is None else Writes(other=total)), True
        if split == total:
            return labelled, True
        self.flags.add(FLAG_SPLIT)
        if split > total:
            return NO_WRITES, False
        return labelled._replace(other=total - split + (labelled.other or 0)), True

    def done(self) -> tuple[str, ...]:
        """Return the flags in a fixed order."""
        return tuple(sorted(self.flags))


def is_ambiguous(text: str) -> bool:
    """Whether a count may be grouped by dots: ``20.000`` is twenty to some, and more to others."""
    return _DOTTED.match(text) is not None


def _whole(value: Any) -> int | None:
    """Read text or a decimal fraction of zero as a whole number."""
    number: Any = value
    if isinstance(value, str):
        # The limit keeps damage from costing quadratic time in the conversion.
        if len(value) > _LONGEST_TEXT or is_ambiguous(value.strip()):
            return None
        try:
            number = int(value)
        except ValueError:
            try:
                number = float(value)
            except ValueError:
                return None
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    if not math.isfinite(number) or number != int(number):
        return None
    return int(number)


def additive(
    reader: Reader,
    *,
    fresh: int | None,
    read: int | None,
    writes: Writes,
    writes_certain: bool = True,
    stated_total: int | None = None,
    output: int | None = None,
    **rest: Any,
) -> Usage:
    """Make the parts of a record whose input count leaves the cache out.

    Where no cache field is there at all, the count is the whole prompt and nothing is known of
    its split.

    Args:
        reader: Collects the flags.
        fresh: Input that was neither read nor written.
        read: Input read from a cache.
        writes: Input written to it.
        writes_certain: False where the writes contradict each other.
        stated_total: Sum of input and output that the record states.
        output: Output tokens.
        rest: Further fields of :class:`Usage`.
    """
    written = writes.total
    total: int | None = None
    if fresh is not None and writes_certain and not reader.damaged:
        if read is not None:
            total = fresh + read + (written or 0)
        elif written is None:
            total, fresh = fresh, None
    if read is None and (fresh is not None or total is not None):
        reader.flags.add(FLAG_SPLIT_UNKNOWN)
    if None not in (stated_total, total, output) and stated_total != (total or 0) + (output or 0):
        reader.flags.add(FLAG_TOTAL)
    return _usage(reader, total, fresh, read, writes, output, rest)


def inclusive(
    reader: Reader,
    *,
    total: int | None,
    read: int | None,
    writes: Writes,
    writes_certain: bool = True,
    stated_total: int | None = None,
    output: int | None = None,
    **rest: Any,
) -> Usage:
    """Make the parts of a record whose input count holds the cache reads and writes.

    Args as in :func:`additive`, with ``total`` for all input.
    """
    fresh: int | None = None
    if total is not None and (read or 0) + (writes.total or 0) > total:
        reader.flags.add(FLAG_CACHE_OVER_INPUT)
        total = None
    elif total is not None and read is not None:
        if writes_certain and not reader.damaged:
            fresh = total - read - (writes.total or 0)
    elif total is not None:
        reader.flags.add(FLAG_SPLIT_UNKNOWN)
    if None not in (stated_total, total, output) and stated_total != (total or 0) + (output or 0):
        reader.flags.add(FLAG_TOTAL)
    return _usage(reader, total, fresh, read, writes, output, rest)


def _usage(
    reader: Reader,
    total: int | None,
    fresh: int | None,
    read: int | None,
    writes: Writes,
    output: int | None,
    rest: Mapping[str, Any],
) -> Usage:
    return Usage(
        total_input=total,
        uncached_input=fresh,
        cache_read=read,
        write_5m=writes.m5,
        write_1h=writes.h1,
        write_30m=writes.m30,
        write_12h=writes.h12,
        write_other=writes.other,
        output=output,
        flags=reader.done(),
        **rest,
    )


def reasoning_of(reader: Reader, output: int | None, reasoning: int | None) -> int | None:
    """Check that reasoning lies inside the output; a contradiction is flagged and unknown."""
    if output is not None and reasoning is not None and reasoning > output:
        reader.flags.add(FLAG_FIELDS_DISAGREE)
        return None
    return reasoning


def text(record: Mapping[str, Any], name: str) -> str | None:
    """Return a field that should be text, else ``None``."""
    value = record.get(name)
    return value if isinstance(value, str) and value else None


def by_ttl(counts: Mapping[str, int | None]) -> Writes:
    """Sort counts by the name of their lifetime (``5m``, ``1h`` …); unknown names go to other."""
    found: dict[str, int | None] = {}
    for name, count in counts.items():
        label = _TTL_NAMES.get(name.strip().lower(), "other")
        found[label] = add(found.get(label), count)
    return Writes(*(found.get(name) for name in ("5m", "1h", "30m", "12h", "other")))


def ephemeral(reader: Reader, record: Mapping[str, Any]) -> Writes:
    """Read the object ``cache_creation`` of the Messages API."""
    if not record:
        return NO_WRITES
    return Writes(
        reader.count(record.get("ephemeral_5m_input_tokens")),
        reader.count(record.get("ephemeral_1h_input_tokens")),
        reader.count(record.get("ephemeral_30m_input_tokens")),
        reader.count(record.get("ephemeral_12h_input_tokens")),
    )
