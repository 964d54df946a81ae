"""Moonshot's Kimi: the shape of Chat Completions; the lifetime stands in the request's options."""

from __future__ import annotations

from cacheaudit.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider("kimi", models=("kimi", "moonshot"), without=("prompt_cache_key",))
