"""Langfuse ``usageDetails``: every key beginning with ``input`` is a part of the input.

Older integrations stored the whole prompt under ``input`` and the cached parts beside it. Such a
record shows itself by its sums: the parts fill ``input`` almost exactly. It is read as inclusive
and flagged, since the key means something else by definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cacheaudit.dialects.reading import Reader, Writes, additive, inclusive, reasoning_of
from cacheaudit.model.usage import FLAG_FIELDS_DISAGREE, Usage, add

_READ: Final = ("input_cache_read", "input_cached_tokens", "cache_read_input_tokens")
_WRITE: Final = ("input_cache_creation", "input_cache_write", "cache_creation_input_tokens")
_OTHER_INPUT: Final = ("input_audio_tokens", "input_image_tokens", "input_text_tokens")
_REASONING: Final = ("output_reasoning_tokens", "output_reasoning")
# Fresh input equal to the cached input within one percent does not happen by chance at this size.
_SMALLEST: Final = 256
_SHARE: Final = 100


class LangfuseDialect:
    """Reads ``usageDetails`` of an observation."""

    name = "langfuse"
    rank = 55

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether the names are those of ``usageDetails``."""
        if "input_other" in usage:
            return False
        names = (*_READ[:2], *_WRITE[:2], "input_cache_creation_5m", "input_cache_creation_1h")
        return any(name in usage for name in names) or (
            ("input" in usage or "output" in usage)
            and ("cache_read_input_tokens" in usage or _WRITE[2] in usage)
        )

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts."""
        reader = Reader()
        read = reader.first(usage, *_READ)
        writes, certain = reader.writes(
            reader.first(usage, *_WRITE),
            Writes(
                reader.count(usage.get("input_cache_creation_5m")),
                reader.count(usage.get("input_cache_creation_1h")),
            ),
        )
        stated_input = reader.count(usage.get("input"))
        others = add(*(reader.count(usage.get(name)) for name in _OTHER_INPUT))
        reasoning = reader.first_aside(usage, *_REASONING)
        output = add(reader.aside(usage.get("output")), reasoning)
        stated = reader.aside(usage.get("total"))
        rest: dict[str, Any] = {
            "read": read,
            "writes": writes,
            "writes_certain": certain,
            "output": output,
            "reasoning": reasoning_of(reader, output, reasoning),
            "dialect": self.name,
        }
        cached = (read or 0) + (writes.total or 0)
        whole = stated_input is not None and stated == stated_input + (output or 0) and cached > 0
        if whole:
            return inclusive(reader, total=stated_input, stated_total=stated, **rest)
        if stated_input is not None and _looks_whole(stated_input, cached):
            reader.flags.add(FLAG_FIELDS_DISAGREE)
            return inclusive(reader, total=stated_input, **rest)
        fresh = None if stated_input is None else stated_input + (others or 0)
        return additive(reader, fresh=fresh, stated_total=stated, **rest)


def _looks_whole(stated: int, cached: int) -> bool:
    return cached >= _SMALLEST and 0 <= stated - cached <= stated // _SHARE


DIALECT = LangfuseDialect()
