"""OpenTelemetry attributes for generative models, with every alias in the field: inclusive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cacheaudit.dialects.reading import Reader, Writes, inclusive, reasoning_of
from cacheaudit.model.usage import Usage

INPUT: Final = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "llm.usage.prompt_tokens",
)
OUTPUT: Final = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "llm.usage.completion_tokens",
)
READ: Final = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cache_read_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.details.cache_read_input_tokens",
    "gen_ai.usage.input_tokens.cached",
    "gen_ai.usage.cached_tokens",
    "gen_ai.usage.input_cached_tokens",
    "gen_ai.usage.input_cache_read",
    "llm.token_count.prompt_details.cache_read",
    "llm.token_count.prompt_details.cache_input",
)
WRITE: Final = (
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write_input_tokens",
    "gen_ai.usage.cache_write_tokens",
    "gen_ai.usage.cache_creation_tokens",
    "gen_ai.usage.details.cache_write_tokens",
    "gen_ai.usage.details.cache_creation_input_tokens",
    "gen_ai.usage.input_tokens.cache_write",
    "gen_ai.usage.input_cache_creation",
    "llm.token_count.prompt_details.cache_write",
)
REASONING: Final = (
    "gen_ai.usage.reasoning.output_tokens",
    "gen_ai.usage.reasoning_tokens",
    "gen_ai.usage.output_tokens.reasoning",
    "gen_ai.usage.details.reasoning_tokens",
    "llm.token_count.completion_details.reasoning",
)
TOTAL: Final = (
    "gen_ai.usage.total_tokens",
    "llm.token_count.total",
    "llm.usage.total_tokens",
)
_SPLIT: Final = {
    ttl: (
        f"anthropic.usage.cache_creation.ephemeral_{ttl}_input_tokens",
        f"gen_ai.usage.details.ephemeral_{ttl}_input_tokens",
        f"gen_ai.usage.cache_creation.ephemeral_{ttl}_input_tokens",
        f"gen_ai.usage.input_cache_creation_{ttl}",
        f"cacheaudit.usage.cache_write_{ttl}",
    )
    for ttl in ("5m", "1h", "30m", "12h")
}
_PREFIXES: Final = ("gen_ai.usage.", "llm.token_count.", "llm.usage.")
_SPLIT_NAMES: Final = frozenset(name for names in _SPLIT.values() for name in names)


def is_count(name: str) -> bool:
    """Whether an attribute of that name is a count that the dialect reads."""
    return name.startswith(_PREFIXES) or name in _SPLIT_NAMES


class OtelDialect:
    """Reads usage from span attributes."""

    name = "otel"
    rank = 5

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether any name is a usage attribute."""
        return any(name.startswith(_PREFIXES) for name in usage if isinstance(name, str))

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the attributes into disjoint parts; numbers as text are normal in OTLP."""
        reader = Reader(text_is_normal=True)
        writes, certain = reader.writes(
            reader.first(usage, *WRITE),
            Writes(*(reader.first(usage, *names) for names in _SPLIT.values())),
        )
        output = reader.first_aside(usage, *OUTPUT)
        return inclusive(
            reader,
            total=reader.first(usage, *INPUT),
            read=reader.first(usage, *READ),
            writes=writes,
            writes_certain=certain,
            stated_total=reader.first_aside(usage, *TOTAL),
            output=output,
            reasoning=reasoning_of(reader, output, reader.first_aside(usage, *REASONING)),
            dialect=self.name,
        )


DIALECT = OtelDialect()
