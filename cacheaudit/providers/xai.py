"""xAI: the shapes of Chat Completions and Responses; the key decides which server is asked."""

from __future__ import annotations

from cacheaudit.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider("xai", models=("grok",))
