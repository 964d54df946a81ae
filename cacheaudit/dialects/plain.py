"""Plain usage logs: the names of the published session format, numbers as text allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cacheaudit.dialects.reading import (
    NO_WRITES,
    Reader,
    Writes,
    additive,
    by_ttl,
    inclusive,
    reasoning_of,
    text,
)
from cacheaudit.model.usage import FLAG_TOTAL, FLAG_TTL_ASSUMED, TTLS, Usage

_TOTAL: Final = ("total_input", "input")
_FRESH: Final = ("uncached_input", "uncached", "fresh")
_READ: Final = ("cache_read", "read")
_WRITE: Final = ("cache_write", "write")
_OUTPUT: Final = ("output", "output_tokens")


class PlainDialect:
    """Reads ``total_input`` or the parts, ``cache_write``, ``cache_read`` and ``output``."""

    name = "plain"
    rank = 90

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether a count stands there under one of the plain names."""
        names = (*_TOTAL, *_FRESH, "cache_read", "cache_write", "output")
        return any(name in usage for name in names)

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts."""
        reader = Reader(text_is_normal=True)
        total = reader.first(usage, *_TOTAL)
        fresh = reader.first(usage, *_FRESH)
        read = reader.first(usage, *_READ)
        writes, certain = _writes(reader, usage)
        output = reader.first_aside(usage, *_OUTPUT)
        reasoning = reader.aside(usage.get("reasoning"))
        rest: dict[str, Any] = {
            "read": read,
            "writes": writes,
            "writes_certain": certain,
            "output": output,
            "reasoning": reasoning_of(reader, output, reasoning),
            "service_tier": text(usage, "service_tier"),
            "speed": text(usage, "speed"),
            "inference_geo": text(usage, "inference_geo"),
            "web_searches": reader.aside(usage.get("web_searches")),
            "dialect": self.name,
        }
        assumed = usage.get("write_other_ttl")
        if assumed in TTLS and writes.other:
            reader.flags.add(FLAG_TTL_ASSUMED)
            rest["write_other_ttl"] = assumed
        if fresh is None:
            return inclusive(reader, total=total, **rest)
        if total is not None and read is None and certain:
            rest["read"] = read = _rest(total, fresh, writes)
        if total is not None and read is not None and certain:
            if fresh + read + (writes.total or 0) == total:
                return additive(reader, fresh=fresh, **rest)
            reader.flags.add(FLAG_TOTAL)
            return Usage(
                uncached_input=fresh,
                cache_read=read,
                write_5m=writes.m5,
                write_1h=writes.h1,
                write_30m=writes.m30,
                write_12h=writes.h12,
                write_other=writes.other,
                flags=reader.done(),
                **{k: v for k, v in rest.items() if k not in ("read", "writes", "writes_certain")},
            )
        return additive(reader, fresh=fresh, **rest)


def _rest(total: int, fresh: int, writes: Writes) -> int | None:
    """Work out the reads from a total, where they alone are missing."""
    left = total - fresh - (writes.total or 0)
    return left if left >= 0 and writes.total is not None else None


def _writes(reader: Reader, usage: Mapping[str, Any]) -> tuple[Writes, bool]:
    """Read writes: a count, an object by lifetime, columns by lifetime, or a count and its TTL."""
    labelled = by_ttl_columns(reader, usage)
    for name in _WRITE:
        value = usage.get(name)
        if isinstance(value, dict):
            counts = {str(key): reader.count(count) for key, count in value.items()}
            return by_ttl(counts), True
    total = reader.first(usage, *_WRITE)
    ttl = text(usage, "cache_write_ttl") or text(usage, "ttl")
    if ttl is not None and labelled == NO_WRITES and total is not None:
        return by_ttl({ttl: total}), True
    return reader.writes(total, labelled)


def by_ttl_columns(reader: Reader, usage: Mapping[str, Any]) -> Writes:
    """Read ``cache_write_5m``, ``cache_write_1h`` and so on (``write_5m`` is the same)."""
    return Writes(
        *(
            reader.first(usage, f"cache_write_{ttl}", f"write_{ttl}")
            for ttl in ("5m", "1h", "30m", "12h", "other")
        )
    )


DIALECT = PlainDialect()
