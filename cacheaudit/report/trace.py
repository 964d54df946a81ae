"""Takes amounts apart again: tokens times rate, checked to be the amount to the last digit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

import msgspec

from cacheaudit.model.money import MILLION, ZERO, decimal
from cacheaudit.report.result import CallRow, PriceUsed

READ, UNCACHED, OUTPUT = "read", "uncached", "output"
_WRITES = ("write_5m", "write_1h", "write_30m", "write_12h")


class Line(msgspec.Struct, frozen=True):
    """Tokens of one kind, billed by one price row."""

    price: str
    part: str
    tokens: int
    rate: str
    amount: Decimal


class Bill:
    """The bill by price row and kind of token, and each call's amount in parts.

    Only what comes out exactly is taken apart; the rest is kept as a sum without parts.
    """

    def __init__(self, prices: Sequence[PriceUsed]) -> None:
        self._rates = {
            price.id: {name: decimal(rate) / MILLION for name, rate in price.rates.items()}
            for price in prices
        }
        self._shown = {price.id: price.rates for price in prices}
        self._models: dict[str, list[str]] = {}
        for price in prices:
            self._models.setdefault(price.model, []).append(price.id)
        self._last: dict[str | None, tuple[str, str]] = {}
        self._sums: dict[tuple[str, str], int] = {}
        self.rest = ZERO
        self.rest_calls = 0

    def take(self, row: CallRow) -> dict[str, Decimal] | None:
        """Add a call; return its amount by kind of token, or ``None``."""
        if row.cost is None:
            return None
        cost = decimal(row.cost)
        for price, unlabelled in self._candidates(row):
            tokens = _tokens(row, unlabelled)
            parts = self._parts(price, tokens)
            if parts is not None and sum(parts.values(), ZERO) == cost:
                self._last[row.model] = (price, unlabelled)
                for name, count in tokens.items():
                    if count:
                        key = (price, name)
                        self._sums[key] = self._sums.get(key, 0) + count
                return parts
        self.rest += cost
        self.rest_calls += 1
        return None

    def _candidates(self, row: CallRow) -> Iterator[tuple[str, str]]:
        last = self._last.get(row.model)
        if last is not None and row.price in (None, last[0]):
            yield last
        if row.price in self._rates:
            ids = [row.price]
        else:
            ids = self._models.get(row.model or "") or list(self._rates)
        for price in ids:
            for name in (*_WRITES, UNCACHED):
                if name in self._rates[price]:
                    yield price, name

    def _parts(self, price: str, tokens: dict[str, int]) -> dict[str, Decimal] | None:
        rates = self._rates[price]
        found: dict[str, Decimal] = {}
        for name, count in tokens.items():
            rate = rates.get(name, rates.get(UNCACHED) if name in _WRITES else None)
            if count and rate is None:
                return None
            if rate is not None and count:
                found[name] = rate * count
        return found

    def price_of(self, row: CallRow) -> str | None:
        """Id of the price row of the call that was taken last with this model."""
        return row.price or self._last.get(row.model, (None,))[0]

    @property
    def lines(self) -> list[Line]:
        """The bill, price row by price row."""
        order = {name: place for place, name in enumerate((UNCACHED, *_WRITES, READ, OUTPUT))}
        keys = sorted(self._sums, key=lambda key: (key[0], order.get(key[1], 9)))
        return [self._line(price, part) for price, part in keys]

    def _line(self, price: str, part: str) -> Line:
        name = part if part in self._rates[price] else UNCACHED
        tokens = self._sums[price, part]
        shown = self._shown[price][name]
        return Line(price, part, tokens, shown, self._rates[price][name] * tokens)


def _tokens(row: CallRow, unlabelled: str) -> dict[str, int]:
    tokens = {UNCACHED: row.uncached_input or 0}
    if row.writes:
        for ttl, count in row.writes.items():
            name = f"write_{ttl}" if f"write_{ttl}" in _WRITES else unlabelled
            tokens[name] = tokens.get(name, 0) + count
    elif row.cache_write:
        tokens[unlabelled] = tokens.get(unlabelled, 0) + row.cache_write
    tokens[READ] = row.cache_read or 0
    tokens[OUTPUT] = row.output or 0
    return tokens
