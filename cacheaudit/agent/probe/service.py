"""A probe as people ask for it: an address, a model, a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from cacheaudit.agent.probe.http import Endpoint, endpoint, is_loopback
from cacheaudit.agent.probe.price import Estimate, estimate
from cacheaudit.agent.probe.requests import Api, Probe
from cacheaudit.errors import UsageError
from cacheaudit.ingest.endpoints import endpoint_of
from cacheaudit.pricing.book import PriceBook

ANTHROPIC: Final = "https://api.anthropic.com"
_KEYS: Final = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked.

    Attributes:
        base_url: Address as SDKs take it.
        api: What is spoken there.
        provider: Whose API it is, where the address tells.
        surface: Platform.
        is_local: It is this machine: nothing that is sent costs money.
        key_name: Variable that holds the key; ``None``: none is needed.
    """

    base_url: str
    api: Api
    provider: str | None
    surface: str | None
    is_local: bool
    key_name: str | None


def target(base_url: str, api: Api | None = None, key_name: str | None = None) -> Target:
    """Tell from an address whose API it is and what is spoken there.

    Args:
        base_url: Address.
        api: What is spoken there; ``None``: what the address suggests.
        key_name: Variable that holds the key; ``None``: the provider's usual one.

    Raises:
        UsageError: The variable for the key cannot be told.
    """
    parts = urlsplit(base_url)
    known = endpoint_of(base_url)
    is_local = is_loopback(parts.hostname)
    provider = None if is_local else known.provider
    if api is None:
        speaks_chat = provider in ("openai", "deepseek", "openrouter")
        is_messages = "/anthropic" in parts.path or parts.path.endswith("/messages")
        is_chat = parts.path.endswith("/chat/completions")
        api = "chat" if is_chat or (speaks_chat and not is_messages) else "messages"
    if key_name is None and not is_local:
        key_name = _KEYS.get(provider or "")
        if key_name is None:
            raise UsageError(
                f"It cannot be told which key {parts.hostname or base_url!r} wants.",
                "Name the variable that holds it: --key-env NAME.",
            )
    return Target(
        base_url=base_url,
        api=api,
        provider=provider,
        surface=known.surface,
        is_local=is_local,
        key_name=key_name,
    )


def plan(found: Target, model: str, document: str, run: str, ttl: str | None = None) -> Probe:
    """Make the plan of a probe.

    Args:
        found: Who is asked.
        model: Model id.
        document: Text that is to be kept.
        run: Identity of this run.
        ttl: Lifetime asked for.

    Raises:
        UsageError: The text is empty, or the API knows no lifetimes.
    """
    if not document.strip():
        raise UsageError("The document is empty.", "Give a text of a few pages.")
    if ttl is not None and found.api == "chat":
        raise UsageError("Chat Completions has no lifetimes to ask for.", "Leave --ttl out.")
    field = "max_completion_tokens" if found.provider == "openai" else "max_tokens"
    return Probe(model=model, document=document, run=run, api=found.api, ttl=ttl, limit_field=field)


def server(
    found: Target, key: str | None, headers: Mapping[str, str] | None = None, timeout: float = 180.0
) -> Endpoint:
    """Make what sends the requests.

    Raises:
        UsageError: The address is none, or a key would travel in the clear.
    """
    return endpoint(found.base_url, found.api, key, headers, timeout)


def cost(found: Target, made: Probe, book: PriceBook, at: float, requests: int = 4) -> Estimate:
    """Estimate what a probe costs at most.

    Raises:
        UsageError: The text is surely too short for the model to keep anything of it.
    """
    said = estimate(
        made, book, provider=found.provider, surface=found.surface, at=at, requests=requests
    )
    if said.is_too_short:
        raise UsageError(
            f"The document has about {said.tokens:,} tokens; {made.model} keeps nothing under "
            f"{said.minimum:,}.",
            "Take a longer one.",
        )
    return said
