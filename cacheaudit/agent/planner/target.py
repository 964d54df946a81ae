"""Where a request goes, and the rules and rates that hold there."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from cacheaudit.agent.planner.forecast import CacheRules
from cacheaudit.agent.planner.lifetime import Rates
from cacheaudit.ingest.endpoints import endpoint_of, provider_of_model
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.equivalents import default_multipliers
from cacheaudit.providers import facts
from cacheaudit.providers.facts import Rules

_READ: Final = Decimal("0.1")
_SECONDS: Final = {"5m": 300.0, "1h": 3600.0}
_WRITES: Final = {"5m": Decimal("1.25"), "1h": Decimal(2)}


class Target(msgspec.Struct, frozen=True):
    """Where a request goes.

    Attributes:
        provider: Whose prices apply.
        surface: Platform.
        model: Model as sent.
        facts: Rules of the model's cache; ``None``: none are known.
        home: What keeps its cache apart from others.
    """

    provider: str | None
    surface: str | None
    model: str
    facts: Rules | None
    home: bytes


def target_of(
    body: Mapping[str, Any], url: str, at: float, surface: str | None = None
) -> Target | None:
    """Look up where a request goes; ``None`` where it names no model.

    Args:
        body: The request.
        url: Its address.
        at: Its start.
        surface: Platform, where a recorded call has told it.
    """
    endpoint = endpoint_of(url)
    model = body.get("model") or body.get("modelId") or endpoint.model
    if not isinstance(model, str):
        return None
    surface = surface or endpoint.surface
    provider = provider_of_model(model) or endpoint.provider
    if endpoint.provider == "local" and provider != "anthropic":
        provider = "local"
    host = urlsplit(url if "//" in url else f"//{url}").netloc
    found = facts.rules(provider, model, at, surface)
    return Target(provider, surface, model, found, host.encode(errors="replace"))


def cache_rules(found: Rules) -> CacheRules:
    """Put together what matters for placing markers; the stricter of two minima counts."""
    seconds = found.ttl_seconds()
    minimum = max(found.integer("minimum_tokens", 1024), found.integer("platform_minimum_tokens"))
    return CacheRules(
        minimum=minimum,
        positions=found.integer("lookback_positions", 20),
        most=found.integer("most_markers", 4),
        seconds={k: v for k, v in seconds.items() if k in _WRITES} or dict(_SECONDS),
        default="5m",
        server_writes=found.flag("server_tool_writes"),
    )


def rates_of(book: PriceBook, target: Target, at: float, tokens: int) -> Rates:
    """Look up what tokens cost; documented multipliers where no price is known.

    Args:
        book: Price tables.
        target: Where the request goes.
        at: Its start.
        tokens: Its size, which may decide the price.
    """
    card = book.card(target.provider, target.model, at, surface=target.surface, total_input=tokens)
    if card is not None and card.uncached and card.writes:
        writes = {ttl: rate / card.uncached for ttl, rate in card.writes.items()}
        return Rates(card.read / card.uncached, writes, card.uncached, card.currency)
    usual = default_multipliers(target.provider)
    if usual is not None and usual.read is not None and usual.writes:
        return Rates(usual.read, usual.writes)
    return Rates(_READ, _WRITES)
