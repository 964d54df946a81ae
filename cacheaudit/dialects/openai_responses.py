"""Responses API usage: the input count holds cache reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cacheaudit.dialects.openai_chat import ttl_writes
from cacheaudit.dialects.reading import Reader, inclusive, reasoning_of, text
from cacheaudit.model.usage import Usage


class OpenAIResponsesDialect:
    """Reads usage of the Responses API."""

    name = "openai_responses"
    rank = 25

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether the names are those of the Responses API."""
        if "input_tokens_details" in usage:
            return True
        return (
            "input_tokens" in usage
            and "total_tokens" in usage
            and not any("cache" in name for name in usage)
        )

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts."""
        reader = Reader()
        details = reader.section(usage, "input_tokens_details")
        out = reader.section(usage, "output_tokens_details")
        writes, certain = reader.writes(
            reader.first(details, "cache_write_tokens", "cache_creation_input_tokens"),
            ttl_writes(reader, reader.section(details, "cache_write_tokens_details")),
        )
        output = reader.aside(usage.get("output_tokens"))
        return inclusive(
            reader,
            total=reader.count(usage.get("input_tokens")),
            read=reader.count(details.get("cached_tokens")),
            writes=writes,
            writes_certain=certain,
            stated_total=reader.aside(usage.get("total_tokens")),
            output=output,
            reasoning=reasoning_of(reader, output, reader.aside(out.get("reasoning_tokens"))),
            service_tier=text(usage, "service_tier"),
            dialect=self.name,
        )


DIALECT = OpenAIResponsesDialect()
