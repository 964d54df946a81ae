"""Totals by day and by agent, added up from the calls."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from cacheaudit.model.money import ZERO, decimal, plain
from cacheaudit.report.result import CallRow, CostTotal, Group, Totals

UNDATED = "no date"
_COUNTS = ("uncached_input", "cache_read", "output", "total_input")
_FIGURES = (*_COUNTS, "cache_write", "cost", "reported_cost")


class _Sums:
    __slots__ = (
        "calls",
        "cost",
        "counts",
        "is_bound",
        "priced",
        "reported",
        "stated",
        "unknown",
        "writes",
    )

    def __init__(self) -> None:
        self.calls = self.priced = 0
        self.cost = self.reported = ZERO
        self.stated = 0
        self.is_bound = False
        self.counts: dict[str, int] = {}
        self.unknown: dict[str, int] = {}
        self.writes: dict[str, int] = {}

    def add(self, row: CallRow) -> None:
        self.calls += 1
        self.is_bound = self.is_bound or row.output_is_lower_bound
        for name in _COUNTS:
            value = getattr(row, name)
            if value is None:
                self.unknown[name] = self.unknown.get(name, 0) + 1
            else:
                self.counts[name] = self.counts.get(name, 0) + value
        if row.cache_write is None:
            self.unknown["cache_write"] = self.unknown.get("cache_write", 0) + 1
        else:
            for ttl, tokens in (row.writes or {"other": row.cache_write}).items():
                self.writes[ttl] = self.writes.get(ttl, 0) + tokens
        if row.cost is not None:
            self.priced += 1
            self.cost += decimal(row.cost)
        if row.reported_cost is not None:
            self.stated += 1
            self.reported += decimal(row.reported_cost)

    def totals(self, currency: str) -> Totals:
        read, whole = self.counts.get("cache_read"), self.counts.get("total_input")
        ratio = None if read is None or not whole else Decimal(read) / whole
        return Totals(
            calls=self.calls,
            uncached_input=self.counts.get("uncached_input"),
            cache_read=read,
            cache_write=dict(self.writes),
            output=self.counts.get("output"),
            output_is_lower_bound=self.is_bound,
            total_input=whole,
            hit_ratio=None if ratio is None else float(round(ratio, 6)),
            unknown_calls=self.unknown,
            cost=CostTotal(
                computed=plain(self.cost) if self.priced else None,
                reported=plain(self.reported) if self.stated else None,
                currency=currency,
                unpriced_calls=self.calls - self.priced,
                reported_calls=self.stated,
            ),
        )


class Ledger:
    """Adds calls up by day and by agent."""

    def __init__(self) -> None:
        self._days: dict[str, _Sums] = {}
        self._agents: dict[str, _Sums] = {}

    def take(self, row: CallRow) -> None:
        """Take the next call; one without any figure is in no total."""
        if all(getattr(row, name) is None for name in _FIGURES):
            return
        day = UNDATED if row.started_at is None else row.started_at[:10]
        for sums, key in ((self._days, day), (self._agents, row.lane or "main")):
            mine = sums.get(key)
            if mine is None:
                mine = sums[key] = _Sums()
            mine.add(row)

    def by_day(self, currency: str) -> list[Group]:
        """Days in their order."""
        return [Group(key, self._days[key].totals(currency)) for key in sorted(self._days)]

    def by_agent(self, currency: str) -> list[Group]:
        """Agents (lanes of conversation), dearest first."""
        order = sorted(self._agents.items(), key=lambda item: (-item[1].cost, item[0]))
        return [Group(key, sums.totals(currency)) for key, sums in order]


class Agreement(msgspec.Struct, kw_only=True):
    """Predicted against reported reads, sorted by how far they are apart."""

    exact: int = 0
    fewer: dict[str, int] = {}
    more: dict[str, int] = {}
    without: int = 0

    def take(self, row: CallRow) -> None:
        """Take the next call."""
        predicted = None if row.predicted is None else row.predicted.cache_read
        if predicted is None or row.cache_read is None:
            self.without += 1
            return
        error = predicted - row.cache_read
        if not error:
            self.exact += 1
            return
        bins = self.fewer if error > 0 else self.more
        name = _bin(abs(error))
        bins[name] = bins.get(name, 0) + 1

    @property
    def compared(self) -> int:
        """Calls with both."""
        return self.exact + sum(self.fewer.values()) + sum(self.more.values())


BINS = ("under 100", "100 to 1,000", "1,000 to 10,000", "10,000 and more")


def _bin(distance: int) -> str:
    for limit, name in zip((100, 1_000, 10_000), BINS, strict=False):
        if distance < limit:
            return name
    return BINS[-1]
