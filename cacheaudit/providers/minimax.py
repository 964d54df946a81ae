"""MiniMax: the shape of Chat Completions, tools first."""

from __future__ import annotations

from cacheaudit.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider("minimax", models=("minimax", "abab"))
