"""Bedrock Converse usage, and other additive records in camel case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cacheaudit.dialects.reading import NO_WRITES, Reader, Writes, additive, by_ttl, text
from cacheaudit.model.usage import FLAG_BAD_TYPE, Usage, add

# One thing under two names: the second is a copy of the first, not a further count.
_READ: Final = ("cacheReadInputTokens", "cacheReadInputTokenCount")
_WRITE: Final = (
    "cacheWriteInputTokens",
    "cacheWriteInputTokenCount",
    "cacheCreationInputTokens",
)
_NAMES: Final = frozenset((*_READ, *_WRITE, "cacheDetails"))
_OTHERS: Final = frozenset({"cachedInputTokens", "cacheReadTokens", "promptTokenCount"})


class BedrockDialect:
    """Reads usage of the Converse API."""

    name = "bedrock"
    rank = 45

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether the names are those of the Converse API."""
        keys = usage.keys()
        if keys & _NAMES:
            return True
        return "outputTokens" in keys and not keys & _OTHERS

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts."""
        reader = Reader()
        writes, certain = reader.writes(
            reader.first(usage, *_WRITE), _details(reader, usage.get("cacheDetails"))
        )
        return additive(
            reader,
            fresh=reader.count(usage.get("inputTokens")),
            read=reader.first(usage, *_READ),
            writes=writes,
            writes_certain=certain,
            stated_total=reader.aside(usage.get("totalTokens")),
            output=reader.aside(usage.get("outputTokens")),
            web_searches=reader.aside(usage.get("webSearchRequests")),
            dialect=self.name,
        )


def _details(reader: Reader, details: Any) -> Writes:
    """Read the split of writes by lifetime."""
    if details is None:
        return NO_WRITES
    if not isinstance(details, list):
        reader.flags.add(FLAG_BAD_TYPE)
        return NO_WRITES
    counts: dict[str, int | None] = {}
    for entry in details:
        if not isinstance(entry, dict):
            reader.flags.add(FLAG_BAD_TYPE)
            continue
        ttl = text(entry, "ttl") or "other"
        counts[ttl] = add(counts.get(ttl), reader.count(entry.get("inputTokens")))
    return by_ttl(counts)


DIALECT = BedrockDialect()
