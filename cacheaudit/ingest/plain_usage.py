"""Turns named token counts that come without a provider's dialect into disjoint parts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cacheaudit.model.usage import (
    FLAG_CACHE_OVER_INPUT,
    FLAG_NEGATIVE,
    FLAG_SPLIT,
    FLAG_SPLIT_UNKNOWN,
    FLAG_TOTAL,
    Usage,
    add,
)


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts as recorded; ``None`` is not known.

    Attributes:
        total: Input, cached tokens included.
        uncached: Input, cached tokens excluded.
        read: Read from the cache.
        write: Written to the cache, all lifetimes together.
        write_5m: Written for five minutes.
        write_1h: Written for an hour.
        write_30m: Written for thirty minutes.
        write_12h: Written for twelve hours.
        write_other: Written with another or an unknown lifetime.
        output: Output, reasoning included.
        reasoning: Reasoning inside the output.
    """

    total: int | None = None
    uncached: int | None = None
    read: int | None = None
    write: int | None = None
    write_5m: int | None = None
    write_1h: int | None = None
    write_30m: int | None = None
    write_12h: int | None = None
    write_other: int | None = None
    output: int | None = None
    reasoning: int | None = None


def has_counts(counts: Counts) -> bool:
    """Whether anything at all is known."""
    return any(getattr(counts, name) is not None for name in counts.__struct_fields__)


def disjoint(counts: Counts, dialect: str) -> Usage:
    """Split counts into parts that share no token.

    The missing one of total and uncached input is computed where the reads are known. Nothing is
    clamped: parts that exceed the total leave the uncached input unknown and raise a flag.

    Args:
        counts: What was recorded.
        dialect: Name to record with the result.
    """
    flags: list[str] = []
    if any((getattr(counts, name) or 0) < 0 for name in counts.__struct_fields__):
        flags.append(FLAG_NEGATIVE)
        counts = _without_negatives(counts)
    other = _unlabelled(counts, flags.append)
    labelled = (counts.write_5m, counts.write_1h, counts.write_30m, counts.write_12h)
    cached = add(counts.read, *labelled, other)
    total, uncached = _whole_and_rest(counts, cached, flags.append)
    return Usage(
        total_input=total,
        uncached_input=uncached,
        cache_read=counts.read,
        write_5m=counts.write_5m,
        write_1h=counts.write_1h,
        write_30m=counts.write_30m,
        write_12h=counts.write_12h,
        write_other=other,
        output=counts.output,
        reasoning=counts.reasoning,
        dialect=dialect,
        flags=tuple(dict.fromkeys(flags)),
    )


def _without_negatives(counts: Counts) -> Counts:
    known = {name: getattr(counts, name) for name in counts.__struct_fields__}
    return Counts(**{name: n for name, n in known.items() if n is not None and n >= 0})


def _unlabelled(counts: Counts, flag: Callable[[str], None]) -> int | None:
    """Return the writes whose lifetime is not told, given the total and the labelled ones."""
    named = add(counts.write_5m, counts.write_1h, counts.write_30m, counts.write_12h)
    if counts.write is None:
        return counts.write_other
    if named is None and counts.write_other is None:
        return counts.write
    rest = counts.write - (named or 0) - (counts.write_other or 0)
    if rest == 0:
        return counts.write_other
    flag(FLAG_SPLIT)
    return (counts.write_other or 0) + rest if rest > 0 else counts.write_other


def _whole_and_rest(
    counts: Counts, cached: int | None, flag: Callable[[str], None]
) -> tuple[int | None, int | None]:
    total, uncached = counts.total, counts.uncached
    if total is not None and uncached is not None:
        if cached is not None and uncached + cached != total:
            flag(FLAG_TOTAL)
        return total, uncached
    if total is not None:
        if cached is not None and cached > total:
            flag(FLAG_CACHE_OVER_INPUT)
            return total, None
        if counts.read is None:
            flag(FLAG_SPLIT_UNKNOWN)
            return total, None
        return total, total - (cached or 0)
    if uncached is not None and counts.read is not None:
        return uncached + (cached or 0), uncached
    if uncached is not None:
        flag(FLAG_SPLIT_UNKNOWN)
    return None, uncached
