"""Z.AI's GLM: the shape of Chat Completions."""

from __future__ import annotations

from cacheaudit.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider("glm", models=("glm",))
