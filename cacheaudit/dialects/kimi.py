"""Token usage in Kimi's wire log: three disjoint input parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cacheaudit.dialects.reading import Reader, Writes, additive
from cacheaudit.model.usage import Usage


class KimiDialect:
    """Reads ``token_usage`` of a status update."""

    name = "kimi"
    rank = 50

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether the names are those of the wire log."""
        return "input_other" in usage

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts."""
        reader = Reader()
        return additive(
            reader,
            fresh=reader.count(usage.get("input_other")),
            read=reader.count(usage.get("input_cache_read")),
            writes=Writes(other=reader.count(usage.get("input_cache_creation"))),
            output=reader.aside(usage.get("output")),
            dialect=self.name,
        )


DIALECT = KimiDialect()
