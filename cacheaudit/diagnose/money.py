"""What lost tokens cost more than they would have as reads: one formula, in one place.

The tokens behind the read part of a prompt were billed in its order: first those written with the
longest lifetime, down to the shortest, then those sent uncached. Each lost token is priced by what
it was billed as, less what reading it would have cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Protocol

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.finding import Loss
from cacheaudit.model.usage import Usage

# Documented multiples of ordinary input where a cache works with markers and the model's own
# prices are not known.
_READ = Decimal("0.1")
_WRITES = {
    "5m": Decimal("1.25"),
    "1h": Decimal(2),
    "30m": Decimal("1.25"),
    "12h": Decimal("2.5"),
    "other": Decimal("1.25"),
}
_UNCACHED = "uncached"
DOCUMENTED: Mapping[str, Decimal] = {_UNCACHED: Decimal(1), "read": _READ, **_WRITES}


class Rates(Protocol):
    """Prices of one token each; see :class:`cacheaudit.pricing.card.RateCard`."""

    @property
    def uncached(self) -> Decimal:
        """One uncached input token."""
        ...

    @property
    def read(self) -> Decimal:
        """One token read."""
        ...

    @property
    def currency(self) -> str:
        """ISO code."""
        ...

    def write_rate(self, ttl: str | None) -> Decimal | None:
        """One token written with a lifetime."""
        ...


class Prices(Protocol):
    """Finds the rates of a call; see :class:`cacheaudit.pricing.book.PriceBook`."""

    def card(
        self,
        provider: str | None,
        model: str | None,
        at: float | None,
        *,
        surface: str | None = None,
        speed: str | None = None,
        service_tier: str | None = None,
        geo: str | None = None,
        total_input: int | None = None,
    ) -> Rates | None:
        """Return the rates, or ``None`` where they are not known."""
        ...


class Premium(msgspec.Struct, frozen=True, gc=False):
    """What lost tokens cost beyond a read.

    Attributes:
        input_equivalents: In ordinary input tokens; ``None`` where no rate is known.
        cost: In money; ``None`` where no price is known.
        currency: Currency of ``cost``.
    """

    input_equivalents: Decimal | None
    cost: Decimal | None
    currency: str | None = None


def premium(call: Call, book: Prices | None, tokens: int, offset: int = 0) -> Premium:
    """Price lost tokens of a call.

    Args:
        call: The call that sent them again.
        book: Prices.
        tokens: How many.
        offset: How many lost tokens of the same call were priced before, counted from the end of
            the part that was read.
    """
    usage = call.usage
    if usage is None:
        return Premium(None, None)
    billed = _billed_as(usage, tokens, offset)
    rates = rates_of(call, usage, book)
    if rates is None:
        return Premium(_by_documented_multiples(billed), None)
    cost = Decimal(0)
    for kind, count in billed.items():
        paid = rates.uncached if kind == _UNCACHED else rates.write_rate(kind)
        if paid is None:
            return Premium(_by_documented_multiples(billed), None)
        cost += count * (paid - rates.read)
    equivalents = cost / rates.uncached if rates.uncached else None
    return Premium(equivalents, cost, rates.currency)


def total(premiums: list[Premium]) -> Loss | None:
    """Sum premiums; a part that is not known leaves the whole not known."""
    equivalents = [p.input_equivalents for p in premiums]
    costs = [p.cost for p in premiums]
    known = [value for value in equivalents if value is not None]
    if not known or len(known) < len(equivalents):
        return None
    paid = [value for value in costs if value is not None]
    is_one_currency = len({p.currency for p in premiums}) == 1
    cost = sum(paid, Decimal(0)) if len(paid) == len(costs) and is_one_currency else None
    return Loss(sum(known, Decimal(0)), cost)


def _billed_as(usage: Usage, tokens: int, offset: int) -> Mapping[str, int]:
    """Split lost tokens by what they were billed as."""
    parts = (
        ("12h", usage.write_12h),
        ("1h", usage.write_1h),
        ("30m", usage.write_30m),
        ("5m", usage.write_5m),
        (usage.write_other_ttl or "other", usage.write_other),
    )
    found: dict[str, int] = {}
    position = 0
    end = offset + tokens
    for kind, size in parts:
        if not size:
            continue
        taken = min(end, position + size) - max(offset, position)
        if taken > 0:
            found[kind] = found.get(kind, 0) + taken
        position += size
    beyond = end - max(offset, position)
    if beyond > 0:
        found[_UNCACHED] = beyond
    return found


def rates_of(call: Call, usage: Usage, book: Prices | None) -> Rates | None:
    """Find the rates of a call; ``None`` where they are not known."""
    if book is None or call.model is None:
        return None
    return book.card(
        call.provider,
        call.model,
        None if call.relative_time else call.at,
        surface=call.surface,
        speed=usage.speed,
        service_tier=usage.service_tier,
        geo=usage.inference_geo,
        total_input=usage.total_input,
    )


def _by_documented_multiples(billed: Mapping[str, int]) -> Decimal | None:
    """Input equivalents of a cache with markers; ``None`` where nothing was written."""
    if not billed or all(kind == _UNCACHED for kind in billed):
        return None
    return sum(
        (
            count * ((Decimal(1) if kind == _UNCACHED else _WRITES[kind]) - _READ)
            for kind, count in billed.items()
        ),
        Decimal(0),
    )
