"""Rows of a usage log in their usual form, read without detour.

A log repeats a few sets of columns millions of times. What each column means is worked out once for
a set; a row in which every cell is what one expects there is then read directly. Any other row is
left to the careful reader, so that both give the same calls (a property test compares them).

Cost: about 4 µs a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from cacheaudit.ingest._fields import is_absent, read_money, text
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.usage_columns import Columns, detail_of, role_of
from cacheaudit.model.call import PURPOSES
from cacheaudit.model.clock import parse_time
from cacheaudit.model.usage import FLAG_SPLIT_UNKNOWN, FLAG_TTL_ASSUMED, Ttl, Usage

_MOST_TOKENS: Final = 10**12
_DIGITS: Final = 12
_KEPT: Final = 4096
_RELATIVE: Final = 1e8
_LONGEST: Final = 1e9
_MILLI: Final = ("_ms", "millis", "milliseconds")
_LABELS: Final = {"5m": "write_5m", "1h": "write_1h", "30m": "write_30m", "12h": "write_12h"}
_TOTAL, _FRESH = "total_input", "uncached_input"
_TARGETS: Final = {
    "total": _TOTAL,
    "uncached": _FRESH,
    "read": "cache_read",
    "write": "write",
    "write_5m": "write_5m",
    "write_1h": "write_1h",
    "write_30m": "write_30m",
    "write_12h": "write_12h",
    "write_other": "write_other",
    "output": "output",
    "reasoning": "reasoning",
}


class UnusualRowError(Exception):
    """A row is not what it usually is; the careful reader is to take it."""


class Words(NamedTuple):
    """What a log has few of: texts, the lifetime of writes, and what else decides the bill."""

    session: str | None = None
    lane: str = "main"
    model: str | None = None
    provider: str | None = None
    surface: str | None = None
    purpose: str = "main"
    attempt: str = "0"
    stop_reason: str | None = None
    outcome: str | None = None
    currency: str = "USD"
    client: str | None = None
    ttl: str | None = None
    billing: Mapping[str, Any] = MappingProxyType({})


_WORDS: Final = Words._fields[:-2]


class Shape(NamedTuple):
    """What the columns of a row mean.

    Attributes:
        counts: Column and meaning of every count.
        details: Column and meaning of what else decides the bill.
        pick: Takes the cells of :class:`Words` out of a row.
        words: What such cells meant before.
        texts: Column of every text, by meaning.
        start: Column of the start.
        empty: Columns that must hold nothing.
        times: Columns of further times.
        lengths: Columns of lengths of time, with what makes seconds of them.
        cost: Column of the stated cost.
        extra: Columns that are kept as they are, with their normal names.
    """

    counts: tuple[tuple[str, str], ...]
    details: tuple[tuple[str, str], ...]
    pick: Callable[[Mapping[str, Any]], Any]
    words: dict[Any, Words]
    texts: dict[str, str]
    start: str
    empty: tuple[str, ...]
    times: dict[str, str]
    lengths: dict[str, tuple[str, float]]
    cost: str | None
    extra: tuple[tuple[str, str], ...]


class Meanings(NamedTuple):
    """Which normal names stand for what, the preferred name first."""

    start: tuple[str, ...]
    times: Mapping[str, tuple[str, ...]]
    lengths: Mapping[str, tuple[str, ...]]
    texts: Mapping[str, tuple[str, ...]]
    cost: tuple[str, ...]
    ignored: frozenset[str]
    understood: frozenset[str]


class Shapes:
    """The sets of columns met so far, and how each is read.

    Args:
        columns: What the file's token columns mean, by normal name.
        meanings: What the other columns mean.
        normal: Gives the normal name of a column.
    """

    def __init__(self, columns: Columns, meanings: Meanings, normal: Callable[[str], str]) -> None:
        self._columns = columns
        self._meanings = meanings
        self._normal = normal
        self._known: dict[tuple[str, ...], Shape | None] = {}
        self._ttls: dict[tuple[str | None, str | None], Ttl | None] = {}

    def of(self, row: Mapping[str, Any]) -> Shape | None:
        """Return how a row is read; ``None`` for the careful reader."""
        key = tuple(row)
        try:
            return self._known[key]
        except KeyError:
            # The careful reader takes the first row of a kind, and says which columns are odd.
            if len(self._known) < _KEPT:
                self._known[key] = self._shape(key)
            return None

    def _shape(self, row: tuple[str, ...]) -> Shape | None:
        names = {self._normal(column): column for column in row}
        if len(names) != len(row):
            return None
        left = dict(names)
        counts = []
        for role, name in self._columns.names.items():
            if name in left:
                target = (self._columns.input_is or "total") if role == "input" else role
                counts.append((left.pop(name), _TARGETS[target]))
        details = [
            (left.pop(name), detail)
            for detail, name in self._columns.details.items()
            if name in left
        ]
        if len({target for _, target in counts}) != len(counts):
            return None
        if any(role_of(name) is not None for name in left):
            return None  # several names of one role
        means = self._meanings
        start = _taken(left, means.start)
        if start is None:
            return None
        texts = {meaning: c for meaning, names in means.texts.items() if (c := _taken(left, names))}
        times = {meaning: c for meaning, names in means.times.items() if (c := _taken(left, names))}
        lengths = {
            meaning: (c, 0.001 if self._normal(c).endswith(_MILLI) else 1.0)
            for meaning, names in means.lengths.items()
            if (c := _taken(left, names))
        }
        cost = _taken(left, means.cost)
        empty = tuple(c for name, c in left.items() if name in means.understood - means.ignored)
        extra = tuple((c, name) for name, c in left.items() if name not in means.understood)
        picked = [texts[name] for name in _WORDS if name in texts]
        picked += [column for column, _ in details]
        pick = itemgetter(*picked) if picked else len
        return Shape(
            tuple(counts),
            tuple(details),
            pick,
            {},
            texts,
            start,
            empty,
            times,
            lengths,
            cost,
            extra,
        )

    def start(self, shape: Shape, row: Mapping[str, Any]) -> float:
        """Read the start of a call.

        Raises:
            UnusualRowError: It is absent, no time, or counts from an unknown moment.
        """
        for column in shape.empty:
            value = row[column]
            if value is not None and not is_absent(value):
                raise UnusualRowError
        at = parse_time(row[shape.start])
        if at is None or at < _RELATIVE:
            raise UnusualRowError
        return at

    def times(
        self, shape: Shape, row: Mapping[str, Any], start: float
    ) -> tuple[float | None, float | None, float | None]:
        """Read end, first token, and the time spent in tools before.

        Raises:
            UnusualRowError: One of them is something else.
        """
        found: dict[str, float | None] = {}
        for meaning, column in shape.times.items():
            value = row[column]
            if value is None or is_absent(value):
                continue
            at = found[meaning] = parse_time(value)
            if at is None or at < _RELATIVE:
                raise UnusualRowError
        for meaning, (column, factor) in shape.lengths.items():
            value = row[column]
            if value is not None and (length := _length(value)) is not None:
                found[meaning] = length if factor == 1.0 else length / 1000
        ended, first = found.get("ended"), found.get("first")
        if ended is None and (duration := found.get("duration")) is not None:
            ended = start + duration
        if first is None and (wait := found.get("wait")) is not None:
            first = start + wait
        return ended, first, found.get("tools")

    def words(self, shape: Shape, row: Mapping[str, Any]) -> Words:
        """Read the texts of which there are few.

        Raises:
            UnusualRowError: One of them is no text, or none of those allowed.
        """
        key = shape.pick(row)
        try:
            return shape.words[key]
        except KeyError:
            found = _said(shape, row)
            for name in _WORDS:
                if (word := self.text(shape, row, name)) is not None:
                    found[name] = word
            words = Words(**found)
            attempt = words.attempt
            if words.purpose not in PURPOSES or not attempt.isdecimal() or len(attempt) > _DIGITS:
                raise UnusualRowError from None
            if len(shape.words) >= _KEPT:
                shape.words.clear()
            shape.words[key] = words
            return words
        except TypeError as error:
            raise UnusualRowError from error

    def text(self, shape: Shape, row: Mapping[str, Any], meaning: str) -> str | None:
        """Read any text."""
        column = shape.texts.get(meaning)
        value = None if column is None else row[column]
        if value is None or is_absent(value):
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UnusualRowError
        return text(value)

    def cost(self, shape: Shape, row: Mapping[str, Any]) -> Any:
        """Read the stated cost."""
        if shape.cost is None:
            return None
        try:
            return read_money(row[shape.cost])
        except ValueError as error:
            raise UnusualRowError from error

    def usage(self, shape: Shape, row: Mapping[str, Any], words: Words) -> Usage:
        """Read the counts.

        Raises:
            UnusualRowError: A count is none, or they do not fit together.
        """
        found: dict[str, Any] = {**words.billing}
        for column, target in shape.counts:
            value = row[column]
            if type(value) is str and value.isdecimal() and len(value) <= _DIGITS:
                found[target] = int(value)
            elif type(value) is int and 0 <= value <= _MOST_TOKENS:
                found[target] = value
            elif value is not None and not is_absent(value):
                raise UnusualRowError
        written = _label(found, words.ttl)
        flags: tuple[str, ...] = ()
        assumed: Ttl | None = None
        if found.get("write_other"):
            flags, assumed = self._assumed(words)
        total, fresh, flags = _input(found, written, flags)
        if "reasoning" in found and found["reasoning"] > found.get("output", -1):
            raise UnusualRowError
        return Usage(
            total_input=total,
            uncached_input=fresh,
            write_other_ttl=assumed,
            dialect="plain",
            flags=flags,
            **found,
        )

    def _assumed(self, words: Words) -> tuple[tuple[str, ...], Ttl | None]:
        """Say which lifetime unlabelled writes are billed at."""
        key = words.provider, words.model
        if key not in self._ttls:
            usage = with_assumed_ttl(Usage(write_other=1), None, *key)
            if len(self._ttls) >= _KEPT:
                self._ttls.clear()
            self._ttls[key] = None if usage is None else usage.write_other_ttl
        ttl = self._ttls[key]
        return ((), None) if ttl is None else ((FLAG_TTL_ASSUMED,), ttl)


def _said(shape: Shape, row: Mapping[str, Any]) -> dict[str, Any]:
    """Read what decides the bill beside the counts."""
    found: dict[str, Any] = {}
    for column, detail in shape.details:
        value = row[column]
        if value is not None and not is_absent(value):
            found[detail] = detail_of(detail, value)
    if type(found.get("web_searches", 0)) is not int:
        raise UnusualRowError
    return {"ttl": found.pop("cache_write_ttl", None), "billing": found}


def _taken(left: dict[str, str], names: Iterable[str]) -> str | None:
    """Take the column of a meaning; further names of it stay and must then hold nothing."""
    for name in names:
        if name in left:
            return left.pop(name)
    return None


def _length(value: object) -> float | None:
    if isinstance(value, str):
        if is_absent(value):
            return None
        if value.replace(".", "", 1).isdecimal() and value[-1] != ".":
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnusualRowError
    if not 0 <= value <= _LONGEST:
        raise UnusualRowError
    return float(value)


def _label(found: dict[str, Any], ttl: str | None) -> int | None:
    """Sort writes by lifetime; returns all of them."""
    write: int | None = found.pop("write", None)
    labelled = [found[name] for name in _LABELS.values() if name in found]
    if "write_other" in found:
        labelled.append(found["write_other"])
    if write is None:
        return sum(labelled) if labelled else None
    if labelled:
        if sum(labelled) != write:
            raise UnusualRowError
    elif ttl is None:
        found["write_other"] = write
    elif ttl in _LABELS:
        found[_LABELS[ttl]] = write
    else:
        raise UnusualRowError
    return write


def _input(
    found: dict[str, Any], written: int | None, flags: tuple[str, ...]
) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Work out all input and its uncached part; everything must fit together."""
    total, fresh, read = found.pop(_TOTAL, None), found.pop(_FRESH, None), found.get("cache_read")
    if read is None:
        if fresh is None and total is not None and not written:
            return total, None, tuple(sorted((*flags, FLAG_SPLIT_UNKNOWN)))
        raise UnusualRowError
    cached = read + (written or 0)
    if total is None and fresh is not None:
        return fresh + cached, fresh, flags
    if total is None or total < cached or fresh not in (None, total - cached):
        raise UnusualRowError
    return total, total - cached, flags
