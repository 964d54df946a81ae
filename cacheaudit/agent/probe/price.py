"""What a probe will cost at most, before anything is sent."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import msgspec

from cacheaudit.agent.probe.requests import LIST, Probe
from cacheaudit.model.tokens import BYTES_PER_TOKEN
from cacheaudit.pricing.book import PriceBook
from cacheaudit.providers.facts import rules

# Offline the size of a text is known to about a fifth.
_SURE: Final = 0.8


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe will send.

    Attributes:
        requests: Most requests.
        tokens: Input of one of them, estimated from its bytes.
        minimum: Tokens below which the model keeps nothing; ``None``: not known.
        cost: Most that it will cost; ``None``: no price is known.
        currency: ISO code.
        source: Where the price was read, and when it was checked.
        reason: Why no price is known.
    """

    requests: int
    tokens: int
    minimum: int | None
    cost: Decimal | None
    currency: str = "USD"
    source: str | None = None
    reason: str | None = None

    @property
    def is_too_short(self) -> bool:
        """Whether the text is surely too short to be kept."""
        return self.minimum is not None and self.tokens < self.minimum * _SURE


def estimate(
    plan: Probe,
    book: PriceBook,
    *,
    provider: str | None,
    surface: str | None,
    at: float | None,
    requests: int = 4,
    writes: int | None = None,
) -> Estimate:
    """Estimate a probe: as if nothing were read, which is the most that it can cost.

    Args:
        plan: What is sent.
        book: Prices.
        provider: Whose API it is.
        surface: Platform.
        at: Now.
        requests: Most requests.
        writes: How many of them may write; ``None``: all.
    """
    size = len(plan.prefix().encode()) + len(LIST)
    tokens = round(size / BYTES_PER_TOKEN)
    known = rules(provider, plan.model, at, surface)
    minimum = None if known is None else known.integer("minimum_tokens") or None
    card = None
    if provider is not None:
        card = book.card(provider, plan.model, at, surface=surface, total_input=tokens)
    if card is None or card.output is None:
        why = "the address is of no known provider"
        if provider is not None:
            why = book.why_not(provider, plan.model, surface=surface)
        return Estimate(requests=requests, tokens=tokens, minimum=minimum, cost=None, reason=why)
    dearest = max(card.uncached, card.write_rate(plan.ttl) or card.uncached)
    share = requests if writes is None else writes
    cost = tokens * (share * dearest + (requests - share) * card.read)
    return Estimate(
        requests=requests,
        tokens=tokens,
        minimum=minimum,
        cost=cost + requests * plan.most_output * card.output,
        currency=card.currency,
        source=f"{card.source}, checked {card.checked}",
    )
