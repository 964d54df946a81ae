"""Gemini ``usageMetadata``: input holds the cached tokens; thoughts stand beside candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cacheaudit.dialects.reading import NO_WRITES, Reader, inclusive, text
from cacheaudit.model.usage import FLAG_TOTAL, Usage, add

_INPUT: Final = ("promptTokenCount", "prompt_token_count")
_OUTPUT: Final = (
    "candidatesTokenCount",
    "candidates_token_count",
    "responseTokenCount",
    "response_token_count",
)


class GeminiDialect:
    """Reads ``usageMetadata``, in camel case or snake case."""

    name = "gemini"
    rank = 15

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether the names are those of ``usageMetadata``."""
        return any(name in usage for name in (*_INPUT, *_OUTPUT))

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts."""
        reader = Reader()
        prompt = reader.first(usage, *_INPUT)
        tools = reader.first(usage, "toolUsePromptTokenCount", "tool_use_prompt_token_count")
        thoughts = reader.first_aside(usage, "thoughtsTokenCount", "thoughts_token_count")
        candidates = reader.first_aside(usage, *_OUTPUT)
        stated = reader.first_aside(usage, "totalTokenCount", "total_token_count")
        total = None if prompt is None else add(prompt, tools)
        output = add(candidates, thoughts)
        # The sum is checked here, since older records leave tool prompts or thoughts out of it.
        if stated is not None and total is not None and output is not None:
            optional = (0, tools or 0, thoughts or 0, (tools or 0) + (thoughts or 0))
            if stated not in {total + output - left_out for left_out in optional}:
                reader.flags.add(FLAG_TOTAL)
        return inclusive(
            reader,
            total=total,
            read=reader.first(usage, "cachedContentTokenCount", "cached_content_token_count"),
            writes=NO_WRITES,
            output=output,
            reasoning=thoughts,
            service_tier=text(usage, "serviceTier") or text(usage, "service_tier"),
            dialect=self.name,
        )


DIALECT = GeminiDialect()
