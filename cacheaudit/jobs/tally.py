"""Adds usage up, by group and by price row, so that money is computed once a row and exactly.

Costs are linear in tokens within one price row (date, tier and service class chosen), so summing
tokens first and pricing the sums gives the same amount to the last digit as pricing every call.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from cacheaudit.model.call import Call
from cacheaudit.model.money import ZERO, plain
from cacheaudit.model.usage import (
    FLAG_NOT_BILLED,
    FLAG_OUTPUT_LOWER_BOUND,
    Usage,
)
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.card import RateCard
from cacheaudit.pricing.cost import price_call
from cacheaudit.pricing.equivalents import call_input_equivalents
from cacheaudit.pricing.plan import Plan
from cacheaudit.report.result import CostTotal, Quality, Totals


class Sums:
    """Token sums of any number of calls; ``None`` where no call knew the part.

    Beside each sum stands of how many calls the part is not known: the sum is a lower bound then.
    """

    __slots__ = (
        "calls",
        "no_output",
        "no_read",
        "no_total",
        "no_uncached",
        "no_write",
        "output",
        "priced",
        "read",
        "searches",
        "total",
        "uncached",
        "w1",
        "w5",
        "w12",
        "w30",
        "wx",
    )

    def __init__(self) -> None:
        self.calls = 0
        self.no_total = self.no_uncached = self.no_read = self.no_write = self.no_output = 0
        self.total: int | None = None
        self.uncached: int | None = None
        self.read: int | None = None
        self.w5: int | None = None
        self.w1: int | None = None
        self.w30: int | None = None
        self.w12: int | None = None
        self.wx: int | None = None
        self.output: int | None = None
        self.searches: int | None = None

    def add(self, usage: Usage) -> None:
        """Add one call."""
        self.calls += 1
        if (value := usage.total_input) is not None:
            self.total = value + (self.total or 0)
        else:
            self.no_total += 1
        if (value := usage.uncached_input) is not None:
            self.uncached = value + (self.uncached or 0)
        else:
            self.no_uncached += 1
        if (value := usage.cache_read) is not None:
            self.read = value + (self.read or 0)
        else:
            self.no_read += 1
        if (value := usage.write_5m) is not None:
            self.w5 = value + (self.w5 or 0)
        elif usage.cache_write is None:
            self.no_write += 1
        if (value := usage.write_1h) is not None:
            self.w1 = value + (self.w1 or 0)
        if (value := usage.output) is not None:
            self.output = value + (self.output or 0)
        else:
            self.no_output += 1
        if (value := usage.web_searches) is not None:
            self.searches = value + (self.searches or 0)
        if (value := usage.write_other) is not None:
            self.wx = value + (self.wx or 0)
        if (value := usage.write_30m) is not None:
            self.w30 = value + (self.w30 or 0)
        if (value := usage.write_12h) is not None:
            self.w12 = value + (self.w12 or 0)

    def merge(self, other: Sums) -> None:
        """Add the sums of other calls."""
        for name in _CALLS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _COUNTS:
            value = getattr(other, name)
            if value is not None:
                setattr(self, name, value + (getattr(self, name) or 0))

    @property
    def unknown_calls(self) -> dict[str, int]:
        """Calls of which a part is not known, by the name that the part has in the result."""
        return {part: n for part, name in _UNKNOWN.items() if (n := getattr(self, name))}


CURRENCY = "USD"
_COUNTS = ("total", "uncached", "read", "w5", "w1", "w30", "w12", "wx", "output", "searches")
_UNKNOWN = {
    "uncached_input": "no_uncached",
    "cache_read": "no_read",
    "cache_write": "no_write",
    "output": "no_output",
    "total_input": "no_total",
}
_CALLS = ("calls", *_UNKNOWN.values())


class Bucket:
    """One group: token sums, exact money, and what could not be priced."""

    __slots__ = (
        "by_card",
        "equivalents",
        "extra",
        "lower_bound",
        "odd",
        "reasons",
        "reported",
        "reported_calls",
        "unpriced",
        "without_equivalents",
    )

    def __init__(self) -> None:
        self.by_card: dict[str, tuple[RateCard, Sums]] = {}
        self.odd = Sums()
        self.extra = ZERO
        self.equivalents = ZERO
        self.without_equivalents = 0
        self.reported: Decimal | None = None
        self.reported_calls = 0
        self.unpriced = 0
        self.reasons: dict[str, int] = {}
        self.lower_bound = False

    def merge(self, other: Bucket) -> None:
        """Add another group."""
        for key, (card, sums) in other.by_card.items():
            mine = self.by_card.get(key)
            if mine is None:
                mine = self.by_card[key] = (card, Sums())
            mine[1].merge(sums)
        self.odd.merge(other.odd)
        self.extra += other.extra
        self.equivalents += other.equivalents
        self.without_equivalents += other.without_equivalents
        if other.reported is not None:
            self.reported = other.reported + (self.reported or ZERO)
        self.reported_calls += other.reported_calls
        self.unpriced += other.unpriced
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        self.lower_bound = self.lower_bound or other.lower_bound

    def totals(self) -> Totals:
        """Price the sums and shape them for the result."""
        sums = Sums()
        money, equivalents = self.extra, self.equivalents
        for card, part in self.by_card.values():
            sums.merge(part)
            money += card.amount(
                part.uncached or 0,
                part.read or 0,
                part.w5 or 0,
                part.w1 or 0,
                part.w30 or 0,
                part.w12 or 0,
                part.output or 0,
                part.searches or 0,
            )
            equivalents += _equivalents_of(card, part)
        sums.merge(self.odd)
        return Totals(
            calls=sums.calls,
            uncached_input=sums.uncached,
            cache_read=sums.read,
            cache_write={
                "5m": sums.w5,
                "1h": sums.w1,
                "30m": sums.w30,
                "12h": sums.w12,
                "other": sums.wx,
            },
            output=sums.output,
            output_is_lower_bound=self.lower_bound,
            total_input=sums.total,
            hit_ratio=_ratio(sums.read, sums.total),
            input_equivalents=(
                plain(equivalents) if sums.calls > self.without_equivalents else None
            ),
            unweighted_calls=self.without_equivalents,
            unknown_calls=sums.unknown_calls,
            cost=self._cost(money, sums.calls),
        )

    def _cost(self, money: Decimal, calls: int) -> CostTotal:
        reason = None if calls else "no call with usage"
        if self.reasons:
            counted = sorted(self.reasons.items())
            reason = "; ".join(
                f"{why} ({count} {'call' if count == 1 else 'calls'})" for why, count in counted
            )
        return CostTotal(
            computed=plain(money) if self.unpriced < calls else None,
            reported=plain(self.reported) if self.reported is not None else None,
            currency=CURRENCY,
            unpriced_calls=self.unpriced,
            reason=reason,
            reported_calls=self.reported_calls,
        )


_Service = tuple[str | None, str | None, str | None, str | None, str | None, str | None]


class Tally:
    """Adds calls up by any group key.

    Cost: about 3 µs a call of the usual form.
    """

    def __init__(self, book: PriceBook) -> None:
        self._book = book
        self._plans: dict[_Service, Plan] = {}
        self.buckets: dict[str, Bucket] = {}
        self.cards: dict[str, RateCard] = {}
        self.assumed_multipliers = 0

    def bucket(self, key: str) -> Bucket:
        """Return the bucket of a group, new where it is the first time."""
        found = self.buckets.get(key)
        if found is None:
            found = self.buckets[key] = Bucket()
        return found

    def card(
        self,
        usage: Usage,
        provider: str | None,
        model: str | None,
        surface: str | None,
        at: float | None,
    ) -> RateCard | None:
        """Return the price row of a call."""
        card = self._book.card(
            provider,
            model,
            at,
            surface=surface,
            speed=usage.speed,
            service_tier=usage.service_tier,
            geo=usage.inference_geo,
            total_input=usage.prompt_size,
        )
        if card is not None:
            self.cards[card.id] = card
        return card

    def add(
        self,
        bucket: Bucket,
        usage: Usage,
        provider: str | None,
        model: str | None,
        surface: str | None,
        at: float | None,
    ) -> RateCard | None:
        """Add one call's usage to a group.

        Returns:
            The price row, where its rates times the call's parts are the whole cost.
        """
        flags = usage.flags
        if flags and FLAG_OUTPUT_LOWER_BOUND in flags:
            bucket.lower_bound = True
        if not usage.parts and not usage.write_other and FLAG_NOT_BILLED not in flags:
            service = (
                provider,
                model,
                surface,
                usage.speed,
                usage.service_tier,
                usage.inference_geo,
            )
            plan = self._plans.get(service)
            if plan is None:
                plan = self._plans[service] = self._book.plan(*service)
            card = plan.only
            if card is None or at is None:
                card = plan.pick(at, usage.prompt_size if plan.tiered else None)
            if card is not None and is_plain(usage, card):
                entry = bucket.by_card.get(card.id)
                if entry is None:
                    entry = bucket.by_card[card.id] = (card, Sums())
                    self.cards[card.id] = card
                entry[1].add(usage)
                return card
        self._add_odd(bucket, usage, provider, model, surface, at)
        return None

    def _add_odd(
        self,
        bucket: Bucket,
        usage: Usage,
        provider: str | None,
        model: str | None,
        surface: str | None,
        at: float | None,
    ) -> None:
        """Add a call that needs a closer look: several entries, unlabelled writes, no price."""
        bucket.odd.add(usage)
        # Only its prices are asked for, so the call needs no identity.
        call = Call(
            id="", provider=provider, model=model, surface=surface, started_at=at, usage=usage
        )
        cost = price_call(call, self._book)
        for part_model in {part.model or model for part in usage.parts} or {model}:
            self.card(usage, provider, part_model, surface, at)
        foreign = cost.amount is not None and cost.currency != CURRENCY
        if cost.amount is None or foreign:
            bucket.unpriced += 1
            reason = cost.reason or "no price is known"
            if foreign:
                reason = f"priced in {cost.currency}, totals are in {CURRENCY}"
            bucket.reasons[reason] = bucket.reasons.get(reason, 0) + 1
        else:
            bucket.extra += cost.amount
        equivalents = call_input_equivalents(call, self._book)
        if equivalents is None:
            bucket.without_equivalents += 1
        else:
            if provider is None and cost.amount is None:
                self.assumed_multipliers += 1
            bucket.equivalents += equivalents

    def add_reported(self, bucket: Bucket, cost: Decimal, currency: str) -> None:
        """Add what the record itself says that a call cost; other currencies stay apart."""
        if currency == CURRENCY:
            bucket.reported = cost + (bucket.reported or ZERO)
            bucket.reported_calls += 1

    @property
    def as_of(self) -> str:
        """Newest day on which a price in use was checked; of all tables where none is in use."""
        days = [card.checked for card in self.cards.values()]
        return max(days) if days else self._book.as_of

    def assumptions(self) -> list[Quality]:
        """Say what was assumed on the way to the totals."""
        if not self.assumed_multipliers:
            return []
        text = "calls without a known provider are weighed with write 1.25 or 2, read 0.1"
        return [Quality("multipliers_assumed", self.assumed_multipliers, [text])]

    def add_output(self, bucket: Bucket, tokens: int, card: RateCard | None) -> None:
        """Correct a group for a later copy of a call that had more output."""
        bucket.odd.output = tokens + (bucket.odd.output or 0)
        if card is not None and card.output is not None:
            bucket.extra += card.output * tokens


def is_plain(usage: Usage, card: RateCard) -> bool:
    """Whether a call can be priced by multiplying its parts with the rates of one row."""
    if usage.uncached_input is None or usage.cache_read is None or usage.output is None:
        return False
    writes = card.writes
    return not (
        (usage.write_5m and "5m" not in writes)
        or (usage.write_1h and "1h" not in writes)
        or (usage.write_30m and "30m" not in writes)
        or (usage.write_12h and "12h" not in writes)
        or (usage.web_searches and card.web_search is None)
        or not card.uncached
        or card.output is None
        or card.currency != CURRENCY
    )


def merged(buckets: Iterable[Bucket]) -> Bucket:
    """Add groups up."""
    whole = Bucket()
    for bucket in buckets:
        whole.merge(bucket)
    return whole


def _equivalents_of(card: RateCard, sums: Sums) -> Decimal:
    total = Decimal(sums.uncached or 0) + (card.read_ratio or ZERO) * (sums.read or 0)
    for ttl, tokens in (("5m", sums.w5), ("1h", sums.w1), ("30m", sums.w30), ("12h", sums.w12)):
        if tokens:
            total += (card.write_ratio(ttl) or ZERO) * tokens
    return total


def _ratio(read: int | None, total: int | None) -> float | None:
    return round(read / total, 6) if read is not None and total else None
