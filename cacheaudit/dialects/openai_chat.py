"""Chat Completions usage and its many compatibles: the input count holds the cached tokens.

Also OpenRouter, Kimi, GLM, MiniMax, Qwen, xAI, Mistral, Groq, Fireworks, Together, vLLM, SGLang.
An absent cache field is unknown, not zero: servers leave it out when a switch is off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cacheaudit.dialects.reading import Reader, Writes, ephemeral, inclusive, reasoning_of, text
from cacheaudit.model.usage import Usage

_WRITE_NAMES: Final = (
    "cache_write_tokens",
    "cache_creation_input_tokens",
    "cache_creation_tokens",
)


class OpenAIChatDialect:
    """Reads usage of Chat Completions."""

    name = "openai_chat"
    rank = 30

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether the names are those of Chat Completions."""
        names = ("prompt_tokens", "prompt_tokens_details", "completion_tokens")
        return any(name in usage for name in names)

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts."""
        return normalise_chat(Reader(), usage, self.name)


def normalise_chat(reader: Reader, usage: Mapping[str, Any], name: str) -> Usage:
    """Read a record in the shape of Chat Completions, extras of gateways included."""
    details = reader.section(usage, "prompt_tokens_details")
    read = reader.agreed(
        reader.first(details, "cached_tokens", "cache_read_input_tokens"),
        reader.first(usage, "cached_tokens", "cache_read_input_tokens"),
    )
    writes, certain = chat_writes(reader, usage, details)
    output, reasoning, stated = chat_output(reader, usage)
    tools = reader.section(usage, "server_tool_use")
    return inclusive(
        reader,
        total=reader.count(usage.get("prompt_tokens")),
        read=read,
        writes=writes,
        writes_certain=certain,
        stated_total=stated,
        output=output,
        reasoning=reasoning_of(reader, output, reasoning),
        service_tier=text(usage, "service_tier"),
        web_searches=reader.aside(tools.get("web_search_requests")),
        dialect=name,
    )


def chat_writes(
    reader: Reader, usage: Mapping[str, Any], details: Mapping[str, Any]
) -> tuple[Writes, bool]:
    """Read writes from wherever a gateway puts them."""
    total = reader.agreed(reader.first(details, *_WRITE_NAMES), reader.first(usage, *_WRITE_NAMES))
    split = reader.section(
        details, "cache_creation", "cache_creation_token_details"
    ) or reader.section(usage, "cache_creation", "cache_creation_token_details")
    ttls = reader.section(details, "cache_write_tokens_details")
    labelled = ephemeral(reader, split)
    if ttls:
        labelled = ttl_writes(reader, ttls)
    return reader.writes(total, labelled)


def ttl_writes(reader: Reader, record: Mapping[str, Any]) -> Writes:
    """Read the object ``cache_write_tokens_details``."""
    return Writes(
        reader.count(record.get("ttl_5m_tokens")),
        reader.count(record.get("ttl_1h_tokens")),
        reader.count(record.get("ttl_30m_tokens")),
        reader.count(record.get("ttl_12h_tokens")),
    )


def chat_output(
    reader: Reader, usage: Mapping[str, Any]
) -> tuple[int | None, int | None, int | None]:
    """Read output, reasoning and the stated sum.

    Some providers leave reasoning out of ``completion_tokens``; the stated sum shows it.
    """
    details = reader.section(usage, "completion_tokens_details")
    output = reader.aside(usage.get("completion_tokens"))
    reasoning = reader.aside(details.get("reasoning_tokens"))
    stated = reader.aside(usage.get("total_tokens"))
    prompt = usage.get("prompt_tokens")
    if output is not None and reasoning and isinstance(prompt, int):
        outside = prompt + output + reasoning
        if stated == outside:
            output += reasoning
    return output, reasoning, stated


DIALECT = OpenAIChatDialect()
