"""What markers have saved, by model, over all sessions; with ``strict`` it pays for new ones."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from cacheaudit.agent.planner.account import Pool
from cacheaudit.agent.planner.lifetime import Rates
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.agent.planner.target import Target, rates_of
from cacheaudit.model.tokens import BYTES_PER_TOKEN
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.providers import facts
from cacheaudit.providers.facts import Rules

# How much larger than estimated a request may turn out to be, once bills have told the scale.
_MARGIN: Final = Decimal("1.25")
_ONE: Final = Decimal(1)


# Provider, platform, model; tokens read, written for 5 minutes and for an hour; the latest start.
Past = tuple[str | None, str | None, str | None, int, int, int, float]


class Pools:
    """One pool for each model of each provider and platform.

    Args:
        policy: Whether there are any, and with what credit.
        book: Prices.
    """

    def __init__(self, policy: PlanPolicy, book: PriceBook) -> None:
        self._policy = policy
        self._book = book
        self._pools: dict[tuple[str, str | None, str], Pool] = {}
        self._remembers = False

    def of(self, found: Rules) -> Pool | None:
        """Return the pool of a model; ``None`` where nothing has to pay for markers."""
        if not self._policy.strict:
            return None
        key = (found.provider, found.surface, found.model)
        return self._pools.setdefault(key, Pool(self._policy.credit))

    def remember(self, past: Iterable[Past]) -> None:
        """Enter what earlier sessions saved; only the first time that it is called."""
        if self._remembers:
            return
        self._remembers = True
        for provider, surface, model, read, short, long, latest in past:
            found = None if model is None else facts.rules(provider, model, latest, surface)
            pool = None if found is None else self.of(found)
            if model is None or pool is None:
                continue
            target = Target(provider, surface, model, found, b"")
            pool.balance += _saved(rates_of(self._book, target, latest, 0), read, short, long)


def saved(usage: Usage | None, rates: Rates) -> Decimal | None:
    """Return what markers saved by a bill, in tokens of the provider; ``None``: it does not say."""
    if usage is None or not usage.prompt_size or usage.cache_read is None:
        return None
    # A lifetime that is not told may be the dearest.
    longest = (usage.write_1h or 0) + (usage.write_other or 0)
    return _saved(rates, usage.cache_read, usage.write_5m or 0, longest)


def spare(scale: float, *, is_told: bool) -> Decimal:
    """Return how many tokens of the provider one of ours may be at the most.

    Before the first bill that is as many as it has bytes.
    """
    return Decimal(str(scale)) * _MARGIN if is_told else Decimal(str(BYTES_PER_TOKEN))


def _saved(rates: Rates, read: int, write_5m: int, write_1h: int) -> Decimal:
    amount = (_ONE - rates.read) * read
    for ttl, tokens in (("5m", write_5m), ("1h", write_1h)):
        amount -= (rates.writes.get(ttl, _ONE) - _ONE) * tokens
    return amount
