"""Mistral: the shape of Chat Completions; caching needs the key."""

from __future__ import annotations

from cacheaudit.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider(
    "mistral", models=("mistral", "magistral", "codestral", "devstral", "ministral", "pixtral")
)
