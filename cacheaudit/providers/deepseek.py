"""DeepSeek: the shape of Chat Completions, with the system prompt rendered before the tools."""

from __future__ import annotations

from cacheaudit.providers.openai import SYSTEM_FIRST, OpenAIProvider

PROVIDER = OpenAIProvider(
    "deepseek",
    order=SYSTEM_FIRST,
    models=("deepseek",),
    without=("prompt_cache_key", "service_tier"),
)
