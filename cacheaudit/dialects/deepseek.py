"""DeepSeek usage: hits and misses, which together are the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cacheaudit.dialects.openai_chat import chat_output
from cacheaudit.dialects.reading import NO_WRITES, Reader, additive, inclusive, reasoning_of
from cacheaudit.model.usage import FLAG_TOTAL, Usage


class DeepSeekDialect:
    """Reads usage with ``prompt_cache_hit_tokens``."""

    name = "deepseek"
    rank = 10

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether hits and misses are named."""
        return "prompt_cache_hit_tokens" in usage or "prompt_cache_miss_tokens" in usage

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts."""
        reader = Reader()
        details = reader.section(usage, "prompt_tokens_details")
        hit = reader.agreed(
            reader.count(usage.get("prompt_cache_hit_tokens")),
            reader.count(details.get("cached_tokens")),
        )
        miss = reader.count(usage.get("prompt_cache_miss_tokens"))
        prompt = reader.count(usage.get("prompt_tokens"))
        output, reasoning, stated = chat_output(reader, usage)
        rest: dict[str, Any] = {
            "stated_total": stated,
            "output": output,
            "reasoning": reasoning_of(reader, output, reasoning),
            "dialect": self.name,
        }
        if miss is None:
            return inclusive(reader, total=prompt, read=hit, writes=NO_WRITES, **rest)
        if hit is None and prompt is not None and prompt >= miss:
            hit = prompt - miss
        if hit is None:
            return inclusive(reader, total=prompt, read=None, writes=NO_WRITES, **rest)
        if prompt is not None and hit + miss != prompt:
            reader.flags.add(FLAG_TOTAL)
            rest["stated_total"] = None
            found = additive(reader, fresh=miss, read=hit, writes=NO_WRITES, **rest)
            return _without_total(found)
        return additive(reader, fresh=miss, read=hit, writes=NO_WRITES, **rest)


def _without_total(usage: Usage) -> Usage:
    """Leave the sum unknown where the record states another one."""
    return Usage(
        uncached_input=usage.uncached_input,
        cache_read=usage.cache_read,
        output=usage.output,
        reasoning=usage.reasoning,
        dialect=usage.dialect,
        flags=usage.flags,
    )


DIALECT = DeepSeekDialect()
