"""What single calls cost, as text: exact, in whole numbers of a small enough unit of money."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from cacheaudit.model.usage import Usage
from cacheaudit.pricing.card import RateCard

_ZERO: Final = Decimal(0)


class Costs:
    """Prices calls whose parts were all billed by one price row.

    The same as ``plain(card.amount(...))``, at a fraction of its cost: histories have many calls
    and few price rows.
    """

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}

    def text(self, card: RateCard, usage: Usage) -> str:
        """Write what a call cost, without exponent or trailing zeros."""
        row = self._rows.get(id(card))
        if row is None:
            row = self._rows[id(card)] = _Row(card)
        amount = (usage.uncached_input or 0) * row.uncached + (usage.cache_read or 0) * row.read
        if usage.write_5m:
            amount += usage.write_5m * row.w5
        if usage.write_1h:
            amount += usage.write_1h * row.w1
        if usage.write_30m:
            amount += usage.write_30m * row.w30
        if usage.write_12h:
            amount += usage.write_12h * row.w12
        if usage.output:
            amount += usage.output * row.output
        if usage.web_searches:
            amount += usage.web_searches * row.search
        unit = row.unit
        whole = 0
        if amount >= unit:
            whole, amount = divmod(amount, unit)
        # One unit more gives the places their leading zeros; it is cut off again.
        places = str(unit + amount)[1:].rstrip("0")
        return f"{whole}.{places}" if places else str(whole)


class _Row:
    """Rates of one price row as whole numbers of a small part of its currency.

    ``unit`` is how many of them are one of the currency: a power of ten.
    """

    __slots__ = (
        "card", "output", "read", "search", "uncached", "unit", "w1", "w5", "w12", "w30",
    )  # fmt: skip

    def __init__(self, card: RateCard) -> None:
        self.card = card  # holds it, so that its id stays its own
        writes = [card.writes.get(ttl) or _ZERO for ttl in ("5m", "1h", "30m", "12h")]
        rates = [
            card.uncached,
            card.read,
            *writes,
            card.output or _ZERO,
            card.web_search or _ZERO,
        ]
        places = max(0, *(-int(rate.as_tuple().exponent) for rate in rates))
        self.unit = 10**places
        self.uncached, self.read, self.w5, self.w1, self.w30, self.w12, self.output, self.search = (
            int(rate.scaleb(places)) for rate in rates
        )
