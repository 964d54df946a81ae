"""Usage of Pi session files: additive, one-hour writes as a part of all writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cacheaudit.dialects.reading import Reader, Writes, additive, reasoning_of
from cacheaudit.model.usage import FLAG_SPLIT, Usage


class PiDialect:
    """Reads ``message.usage`` of a Pi session."""

    name = "pi"
    rank = 50

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether the names are those of a Pi session."""
        return "cacheRead" in usage or "cacheWrite" in usage

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts."""
        reader = Reader()
        total = reader.count(usage.get("cacheWrite"))
        hour = reader.count(usage.get("cacheWrite1h"))
        certain = True
        writes = Writes(h1=hour, other=total)
        if hour is not None and total is not None:
            certain = hour <= total
            if not certain:
                reader.flags.add(FLAG_SPLIT)
            rest = total - hour
            writes = Writes(h1=hour, other=rest or None) if certain else Writes()
        output = reader.aside(usage.get("output"))
        reasoning = reader.aside(usage.get("reasoning"))
        return additive(
            reader,
            fresh=reader.count(usage.get("input")),
            read=reader.count(usage.get("cacheRead")),
            writes=writes,
            writes_certain=certain,
            stated_total=reader.aside(usage.get("totalTokens")),
            output=output,
            reasoning=reasoning_of(reader, output, reasoning),
            dialect=self.name,
        )


DIALECT = PiDialect()
