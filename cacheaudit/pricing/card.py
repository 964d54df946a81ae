"""What one token costs, for one model, date, kind of service and prompt size."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from cacheaudit.errors import PricingError
from cacheaudit.model.money import MILLION, plain

# Twelve places leave products with token counts exact, so that equivalents add up exactly.
_RATIO = Decimal("1e-12")
WRITE_LABELS = ("5m", "1h", "30m", "12h")


class RateCard(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of one price row, for one token each.

    Attributes:
        id: Stable text that names the row, such as
            ``anthropic/claude-opus-5-5@start/standard``.
        provider: Name of the price table.
        model: Model id in that table.
        currency: ISO code.
        variant: ``standard``, ``batch``, ``fast``, ``flex``, ``priority`` …
        uncached: One uncached input token.
        read: One token read from the cache; equal to ``uncached`` where nothing else is published.
        writes: One token written, by lifetime; a lifetime without a known price is absent.
        output: One output token; ``None`` where none is published.
        web_search: One web search; ``None`` where none is published.
        write_ttl: Lifetime that a write without a recorded one is billed at.
        above: The row holds for prompts of more tokens than this; 0 for the first tier.
        valid_from: First UTC day, ISO; ``None``: as far back as the model goes.
        valid_to: UTC day on which the row no longer holds; ``None``: still valid.
        source: Where the price was read.
        checked: Day on which it was last compared with its source, ISO.
        note: What else the reader should know.
        undated: The call's date is not known and the newest row was taken.
    """

    id: str
    provider: str
    model: str
    currency: str
    variant: str
    uncached: Decimal
    read: Decimal
    writes: dict[str, Decimal]
    output: Decimal | None
    web_search: Decimal | None
    write_ttl: str
    above: int
    valid_from: str | None
    valid_to: str | None
    source: str
    checked: str
    note: str | None = None
    undated: bool = False

    def write_rate(self, ttl: str | None) -> Decimal | None:
        """Rate of one token written with a lifetime; ``None`` or ``other``: the default one.

        Where a row has a single write price, an unlabelled write can only be that one.
        """
        if ttl is None or ttl == "other":
            rate = self.writes.get(self.write_ttl)
            if rate is None and len(self.writes) == 1:
                return next(iter(self.writes.values()))
            return rate
        return self.writes.get(ttl)

    def amount(
        self,
        uncached: int = 0,
        read: int = 0,
        w5: int = 0,
        w1: int = 0,
        w30: int = 0,
        w12: int = 0,
        output: int = 0,
        web_searches: int = 0,
    ) -> Decimal:
        """Exact price of token sums that were all billed by this row.

        Raises:
            PricingError: There are tokens of a kind that this row has no price for.
        """
        total = self.uncached * uncached + self.read * read
        for ttl, tokens in zip(WRITE_LABELS, (w5, w1, w30, w12), strict=True):
            if tokens:
                total += self._known(self.writes.get(ttl), f"writes kept {ttl}") * tokens
        if output:
            total += self._known(self.output, "output") * output
        if web_searches:
            total += self._known(self.web_search, "web searches") * web_searches
        return total

    def _known(self, rate: Decimal | None, what: str) -> Decimal:
        if rate is None:
            raise PricingError(
                f"{self.id} has no price for {what}.", "Add one with a price file (--prices)."
            )
        return rate

    @property
    def read_ratio(self) -> Decimal | None:
        """Price of a read relative to ordinary input; ``None`` for a free model."""
        return self._ratio(self.read)

    def write_ratio(self, ttl: str | None) -> Decimal | None:
        """Price of a write relative to ordinary input; ``None`` where no price is known."""
        rate = self.write_rate(ttl)
        return None if rate is None else self._ratio(rate)

    def _ratio(self, rate: Decimal) -> Decimal | None:
        return (rate / self.uncached).quantize(_RATIO).normalize() if self.uncached else None

    def per_million(self) -> dict[str, str]:
        """Rates as people quote them: for a million tokens (a thousand searches), as text.

        Write prices are left out where writes are simply billed as ordinary input.
        """
        found = {"uncached": plain(self.uncached * MILLION), "read": plain(self.read * MILLION)}
        published = self.writes if any(r != self.uncached for r in self.writes.values()) else {}
        if len(self.writes) < len(WRITE_LABELS):
            published = self.writes
        for ttl in WRITE_LABELS:
            if ttl in published:
                found[f"write_{ttl}"] = plain(self.writes[ttl] * MILLION)
        if self.output is not None:
            found["output"] = plain(self.output * MILLION)
        if self.web_search is not None:
            found["web_search"] = plain(self.web_search * 1000)
        return found
