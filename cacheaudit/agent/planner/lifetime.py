"""Chooses how long a prefix is to be kept, by what it is expected to cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from cacheaudit.agent.planner.gaps import Odds

NONE: Final = "none"
_ONE: Final = Decimal(1)
_PLACES: Final = Decimal("0.000001")


class Rates(msgspec.Struct, frozen=True):
    """What tokens cost, in ordinary input tokens.

    Attributes:
        read: One token read.
        writes: One token written, by lifetime.
        unit: Price of one ordinary input token; ``None``: not known.
        currency: ISO code of ``unit``.
    """

    read: Decimal
    writes: Mapping[str, Decimal]
    unit: Decimal | None = None
    currency: str = "USD"


class Choice(msgspec.Struct, frozen=True):
    """A lifetime, and why.

    Attributes:
        ttl: ``5m``, ``1h``, or ``none``: sending the tokens unmarked is expected to cost least.
        expected: Expected price of one token from now on, in ordinary input tokens, by lifetime.
        prices: The same in money for all tokens of the level; empty where no price is known.
        odds: Shares of pauses that it rests on.
        tokens: Size of the level.
        currency: ISO code of ``prices``.
        kept: What was done: another lifetime where the session cannot afford the cheapest one.
    """

    ttl: str
    expected: Mapping[str, Decimal]
    prices: Mapping[str, Decimal]
    odds: Odds
    tokens: int
    currency: str = "USD"
    kept: str = NONE


def expected(odds: Odds, rates: Rates, ttl: str) -> Decimal:
    """Return what one token costs from its first request to its last, in ordinary input tokens.

    After each request another one follows within 5 minutes, within the hour, later, or never, with
    the same odds every time; the sum over all of them has a closed form.
    """
    never = max(odds.never, _PLACES)
    again = _ONE - odds.never
    if ttl == NONE:
        return _ONE + again / never
    write = rates.writes[ttl]
    hits = odds.short + (odds.long if ttl == "1h" else 0)
    return write + (hits * rates.read + (again - hits) * write) / never


def choose(
    odds: Odds,
    rates: Rates,
    tokens: int,
    wanted: str = "auto",
    offered: Sequence[str] = ("5m", "1h"),
) -> Choice:
    """Choose between 5 minutes, an hour, and no marker at all.

    Args:
        odds: Shares of pauses at this level.
        rates: The model's rates.
        tokens: Size of the level.
        wanted: A lifetime that is set by hand; only whether to mark at all is then chosen.
        offered: Lifetimes that there are.
    """
    named = [ttl for ttl in ("5m", "1h") if ttl in rates.writes and ttl in offered]
    if wanted in named:
        named = [wanted]
    costs = {ttl: expected(odds, rates, ttl).quantize(_PLACES) for ttl in (*named, NONE)}
    best = min(costs, key=lambda ttl: costs[ttl])
    unit = rates.unit
    prices = {} if unit is None else {ttl: cost * tokens * unit for ttl, cost in costs.items()}
    return Choice(best, costs, prices, odds, tokens, rates.currency, best)
