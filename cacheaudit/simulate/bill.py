"""What simulated calls add up to: tokens, input equivalents and money, exact.

A call that cannot be simulated keeps what was reported of it, so that an edit neither wins nor
loses by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.money import ZERO
from cacheaudit.model.usage import TTLS, Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.cost import price_call
from cacheaudit.pricing.equivalents import call_input_equivalents

_FIELDS: Final = {ttl: f"write_{ttl}" for ttl in TTLS}
_TOLD: Final = ("uncached_input", "cache_read", "cache_write")
_RATIO: Final = Decimal("0.000001")


class Saving(msgspec.Struct, frozen=True):
    """A difference of two bills; negative where the second costs more.

    Attributes:
        input_equivalents: In ordinary input tokens; ``None`` where a multiplier is not known.
        cost: In money; ``None`` where a price is not known.
    """

    input_equivalents: Decimal | None = ZERO
    cost: Decimal | None = ZERO

    def __add__(self, other: Saving) -> Saving:
        return Saving(
            _sum(self.input_equivalents, other.input_equivalents), _sum(self.cost, other.cost)
        )

    def __sub__(self, other: Saving) -> Saving:
        return Saving(
            _less(self.input_equivalents, other.input_equivalents), _less(self.cost, other.cost)
        )

    @property
    def rank(self) -> Decimal:
        """What savings are ordered by: money, or input equivalents where no price is known."""
        known = self.cost if self.cost is not None else self.input_equivalents
        return ZERO if known is None else known


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over calls.

    Attributes:
        calls: How many.
        uncached_input: Tokens neither read nor written.
        cache_read: Tokens read.
        cache_writes: Tokens written, by lifetime.
        output: Output tokens known.
        amounts: Input equivalents (input side only) and money.
        currency: ISO code of the money.
        reason: Why there is no sum of money.
        unknown_calls: Calls that do not tell a part, by its name; the sum lacks them.
    """

    calls: int = 0
    uncached_input: int = 0
    cache_read: int = 0
    cache_writes: dict[str, int] = {}
    output: int = 0
    amounts: Saving = Saving()
    currency: str = "USD"
    reason: str | None = None
    unknown_calls: dict[str, int] = {}

    @property
    def cache_write(self) -> int:
        """Tokens written, whatever their lifetime."""
        return sum(self.cache_writes.values())

    @property
    def total_input(self) -> int:
        """All input tokens."""
        return self.uncached_input + self.cache_read + self.cache_write

    @property
    def hit_ratio(self) -> Decimal | None:
        """Tokens read of all input tokens, to six places; ``None`` where there are none."""
        total = self.total_input
        return (Decimal(self.cache_read) / total).quantize(_RATIO) if total else None

    @property
    def input_equivalents(self) -> Decimal | None:
        """Input side in ordinary input tokens of each call's model."""
        return self.amounts.input_equivalents

    @property
    def cost(self) -> Decimal | None:
        """Money, output included."""
        return self.amounts.cost

    def less(self, other: Bill) -> Saving:
        """What ``other`` saves against this bill."""
        saving = self.amounts - other.amounts
        if self.currency != other.currency:
            return Saving(saving.input_equivalents, None)
        return saving


class Biller:
    """Adds up calls; what one usage of a call costs is worked out once.

    Args:
        book: Prices; ``None``: input equivalents by documented multipliers only.
    """

    def __init__(self, book: PriceBook | None) -> None:
        self._book = book if book is not None else PriceBook()
        self._has_prices = book is not None
        self._known: dict[tuple[str, float | None, str | None, Usage], _Price] = {}

    def bill(self, calls: Sequence[Call], usages: Sequence[Usage | None]) -> Bill:
        """Sum up calls as if their usage had been the one given."""
        sums = _Sums()
        for call, usage in zip(calls, usages, strict=True):
            if usage is not None:
                sums.add(usage, self.price(call, usage))
        return sums.bill(self._has_prices)

    def price(self, call: Call, usage: Usage) -> _Price:
        """Price one call with a usage."""
        key = (call.id, call.at, call.model, usage)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._work_out(msgspec.structs.replace(call, usage=usage))
        return found

    def _work_out(self, call: Call) -> _Price:
        weight = call_input_equivalents(call, self._book)
        if not self._has_prices:
            return _Price(weight, None, call.currency, "no prices")
        cost = price_call(call, self._book)
        return _Price(weight, cost.amount, cost.currency, cost.reason)


class _Price(msgspec.Struct, frozen=True):
    """One call: input equivalents, money, its currency, and why there is none."""

    weight: Decimal | None
    cost: Decimal | None
    currency: str
    reason: str | None

    @property
    def amounts(self) -> Saving:
        """Both sums."""
        return Saving(self.weight, self.cost)


class _Sums:
    def __init__(self) -> None:
        self.calls = self.uncached = self.read = self.output = 0
        self.unknown: dict[str, int] = {}
        self.writes: dict[str, int] = {}
        self.amounts = Saving()
        self.currencies: set[str] = set()
        self.reason: str | None = None

    def add(self, usage: Usage, price: _Price) -> None:
        """Add one call."""
        self.calls += 1
        self.uncached += usage.uncached_input or 0
        self.read += usage.cache_read or 0
        self.output += usage.output or 0
        for part in _TOLD:
            if getattr(usage, part) is None:
                self.unknown[part] = self.unknown.get(part, 0) + 1
        for ttl, field in _FIELDS.items():
            tokens = getattr(usage, field)
            if tokens:
                self.writes[ttl] = self.writes.get(ttl, 0) + tokens
        self.amounts = self.amounts + price.amounts
        self.currencies.add(price.currency)
        self.reason = self.reason or price.reason

    def bill(self, has_prices: bool) -> Bill:
        """Close the sums."""
        amounts = self.amounts
        if len(self.currencies) > 1 or not has_prices:
            amounts = Saving(amounts.input_equivalents, None)
        if not self.calls:
            amounts = Saving(None, None)
        reason = (
            None
            if amounts.cost is not None
            else self.reason or ("several currencies" if self.calls else "no call tells its usage")
        )
        return Bill(
            calls=self.calls,
            uncached_input=self.uncached,
            cache_read=self.read,
            cache_writes=self.writes,
            output=self.output,
            amounts=amounts,
            currency=min(self.currencies, default="USD"),
            reason=reason,
            unknown_calls=self.unknown,
        )


def total(savings: Iterable[Saving]) -> Saving:
    """Sum savings."""
    return sum(savings, Saving())


def _sum(a: Decimal | None, b: Decimal | None) -> Decimal | None:
    return None if a is None or b is None else a + b


def _less(a: Decimal | None, b: Decimal | None) -> Decimal | None:
    return None if a is None or b is None else a - b
