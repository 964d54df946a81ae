"""Picks the expander of a request body: by the provider's name, else by the body's shape."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from cacheaudit import providers as providers_package
from cacheaudit.errors import PromptError
from cacheaudit.model.ports import Provider
from cacheaudit.model.prompt import Prompt

_ALIASES: Final = {
    "alibaba": "qwen",
    "aws": "bedrock",
    "azure": "openai",
    "azure_openai": "openai",
    "claude": "anthropic",
    "dashscope": "qwen",
    "fireworks": "openai",
    "google": "gemini",
    "google_genai": "gemini",
    "grok": "xai",
    "groq": "openai",
    "mistralai": "mistral",
    "moonshot": "kimi",
    "moonshotai": "kimi",
    "openrouter": "openai",
    "sglang": "openai",
    "together": "openai",
    "vllm": "openai",
    "x-ai": "xai",
    "x_ai": "xai",
    "z-ai": "glm",
    "zai": "glm",
    "zhipu": "glm",
}


@cache
def all_providers() -> tuple[Provider, ...]:
    """Return every provider, the most specific first (``PROVIDER.rank``, then name).

    A provider module defines ``PROVIDER``; dropping a file into ``providers`` is all it takes.
    """
    names = sorted(info.name for info in pkgutil.iter_modules(providers_package.__path__))
    modules = (importlib.import_module(f"{providers_package.__name__}.{name}") for name in names)
    found = [module.PROVIDER for module in modules if hasattr(module, "PROVIDER")]
    return tuple(sorted(found, key=lambda p: (getattr(p, "rank", 50), p.name)))


def expand(
    body: Mapping[str, Any], *, provider: str | None = None, previous: Prompt | None = None
) -> Prompt:
    """Turn a request body of any supported API into content blocks.

    Args:
        body: The request as sent; never changed.
        provider: Name of the provider, where it is known. Its rules are used if the body has a
            shape that it takes; a provider that serves another one's API (a gateway, a local
            server, the Messages API of DeepSeek or Bedrock) is expanded by the shape and keeps
            its name.
        previous: Prompt of the call before it, for taking over what did not change.

    Raises:
        PromptError: The body has the shape of no supported API, or is broken.
    """
    chosen = _choose(body, provider)
    prompt = chosen.expand(body, previous)
    if provider is None or provider == prompt.provider:
        return prompt
    return msgspec.structs.replace(prompt, provider=provider)


def _choose(body: Mapping[str, Any], provider: str | None) -> Provider:
    wanted = provider.lower() if provider is not None else None
    named = _ALIASES.get(wanted, wanted) if wanted is not None else None
    for candidate in all_providers():
        if candidate.name == named and _takes(candidate, body):
            return candidate
    for candidate in all_providers():
        if candidate.accepts(body):
            return candidate
    fields = ", ".join(sorted(str(key) for key in body)[:8]) or "nothing"
    raise PromptError(
        f"The request has the shape of no supported API; it holds {fields}.",
        "Expected are messages, input, or contents.",
    )


def _takes(candidate: Provider, body: Mapping[str, Any]) -> bool:
    """Whether a provider that was named takes the body's shape, whatever its model is called."""
    speaks = getattr(candidate, "speaks", candidate.accepts)
    return bool(speaks(body))
