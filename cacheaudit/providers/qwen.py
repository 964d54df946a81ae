"""Alibaba's Qwen: the shape of Chat Completions, with markers on content parts."""

from __future__ import annotations

from cacheaudit.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider("qwen", models=("qwen", "qwq"), extra=("enable_thinking",))
