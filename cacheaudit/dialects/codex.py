"""Codex token counts: inclusive, cached input and reasoning as subsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cacheaudit.dialects.reading import Reader, Writes, inclusive, reasoning_of
from cacheaudit.model.usage import Usage


class CodexDialect:
    """Reads ``total_token_usage`` and ``last_token_usage`` of a rollout."""

    name = "codex"
    rank = 20

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether the names are those of a rollout."""
        return "cached_input_tokens" in usage

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts."""
        reader = Reader()
        output = reader.aside(usage.get("output_tokens"))
        reasoning = reader.aside(usage.get("reasoning_output_tokens"))
        return inclusive(
            reader,
            total=reader.count(usage.get("input_tokens")),
            read=reader.count(usage.get("cached_input_tokens")),
            writes=Writes(
                other=reader.first(usage, "cache_write_input_tokens", "cache_write_tokens")
            ),
            stated_total=reader.aside(usage.get("total_tokens")),
            output=output,
            reasoning=reasoning_of(reader, output, reasoning),
            dialect=self.name,
        )


DIALECT = CodexDialect()
