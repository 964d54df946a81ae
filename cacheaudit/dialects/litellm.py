"""LiteLLM usage objects: the shape of Chat Completions with the Messages API's names beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cacheaudit.dialects.openai_chat import normalise_chat
from cacheaudit.dialects.reading import Reader
from cacheaudit.model.usage import Usage


class LiteLLMDialect:
    """Reads usage where ``prompt_tokens`` stands beside ``cache_read_input_tokens``."""

    name = "litellm"
    rank = 20

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether both families of names stand side by side."""
        return "prompt_tokens" in usage and (
            "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage
        )

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts."""
        return normalise_chat(Reader(), usage, self.name)


DIALECT = LiteLLMDialect()
