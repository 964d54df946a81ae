"""What doing it another way would have cost: tokens moved from one rate to another.

Rules know tokens; prices come in here, so that advice holds for the prices in force and not for a
rule of thumb. A saving may be negative.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import msgspec

from cacheaudit.diagnose.money import DOCUMENTED, Prices, Rates, rates_of
from cacheaudit.diagnose.wording import sum_of
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Loss
from cacheaudit.model.usage import Usage

_TOLD = (
    ("cache_write", "written"),
    ("cache_read", "read"),
    ("uncached_input", "uncached"),
    ("output", "of output"),
)


class Swap(msgspec.Struct, frozen=True, gc=False):
    """Tokens that would have been billed otherwise.

    Attributes:
        index: Position of the call whose model and moment give the rates.
        tokens: How many.
        paid: How they were billed: ``uncached``, ``read`` or a lifetime; ``""``: not at all.
        instead: How they would have been.
    """

    index: int
    tokens: int
    paid: str
    instead: str


class Stage(msgspec.Struct, frozen=True):
    """Calls whose input cost is told in one sentence.

    Attributes:
        label: What they are, as the beginning of a sentence.
        calls: Their positions.
    """

    label: str
    calls: tuple[int, ...]


def saving(session: Session, swaps: Iterable[Swap], book: Prices | None) -> Loss | None:
    """Sum what the swaps would have saved; ``None`` where a rate is not known.

    Where no price is known, documented multiples of ordinary input stand in for the equivalents.
    """
    equivalents, cost = Decimal(0), Decimal(0)
    is_priced, currencies = True, set[str]()
    for swap in swaps:
        call = session.calls[swap.index]
        rates = None if call.usage is None else rates_of(call, call.usage, book)
        paid, instead = _rate(rates, swap.paid), _rate(rates, swap.instead)
        if rates is None or paid is None or instead is None or not rates.uncached:
            is_priced = False
            equivalents += swap.tokens * (_documented(swap.paid) - _documented(swap.instead))
            continue
        cost += swap.tokens * (paid - instead)
        equivalents += swap.tokens * (paid - instead) / rates.uncached
        currencies.add(rates.currency)
    is_one = is_priced and len(currencies) == 1
    return Loss(equivalents, cost if is_one else None)


def affordable_pings(session: Session, index: int, ttl: str, book: Prices | None) -> int:
    """Count the reads of a prefix that together, with the one at last, cost less than one write.

    Args:
        session: The session.
        index: Position of the call whose model and moment give the rates.
        ttl: Lifetime of the write.
        book: Prices; documented multiples where they are not known.
    """
    call = session.calls[index]
    rates = None if call.usage is None else rates_of(call, call.usage, book)
    write, read = _rate(rates, ttl), _rate(rates, "read")
    if write is None or not read:
        write, read = DOCUMENTED[ttl], DOCUMENTED["read"]
    most = (write - read) / read
    whole = int(most)
    return whole - 1 if whole == most else whole


def stage_line(session: Session, stage: Stage, book: Prices | None) -> str:
    """Say what the calls of a stage sent, and what that cost."""
    # A stage has many calls and few prices: tokens are added up by their rates first.
    by_rates: dict[int, _Sums] = {}
    is_known = True
    for index in stage.calls:
        call = session.calls[index]
        usage = call.usage
        if usage is None:
            is_known = False
            continue
        rates = rates_of(call, usage, book)
        mine = by_rates.get(id(rates))
        if mine is None:
            mine = by_rates[id(rates)] = _Sums(rates)
        mine.add(usage)
    groups = list(by_rates.values())
    number = f"{len(stage.calls)} call{'' if len(stage.calls) == 1 else 's'}"
    usages = [session.calls[index].usage for index in stage.calls]
    told = [number]
    for field, word in _TOLD:
        tokens = sum_of(None if usage is None else getattr(usage, field) for usage in usages)
        if tokens is not None:
            told.append(f"{tokens}{' tokens' if len(told) == 1 else ''} {word}")
    line = f"{stage.label}: {', '.join(told)}"
    cost = _input_cost(groups) if is_known else None
    return f"{line}; input cost {cost}." if cost is not None else f"{line}."


class _Sums:
    """Tokens of calls that are billed by the same rates; those of no known rates are one group."""

    __slots__ = ("five", "hour", "rare", "rates", "read", "uncached")

    def __init__(self, rates: Rates | None) -> None:
        self.rates = rates
        self.uncached = self.read = self.five = self.hour = 0
        self.rare: list[tuple[str, int]] = []

    def add(self, usage: Usage) -> None:
        """Add one call."""
        self.uncached += usage.uncached_input or 0
        self.read += usage.cache_read or 0
        self.five += usage.write_5m or 0
        self.hour += usage.write_1h or 0
        if usage.write_30m or usage.write_12h or usage.write_other:
            self.rare += (
                ("30m", usage.write_30m or 0),
                ("12h", usage.write_12h or 0),
                (usage.write_other_ttl or "other", usage.write_other or 0),
            )

    def cost(self) -> Decimal | None:
        """Cost of the input; ``None`` where a rate is not known."""
        total = Decimal(0)
        for kind, tokens in (
            ("uncached", self.uncached),
            ("read", self.read),
            ("5m", self.five),
            ("1h", self.hour),
            *self.rare,
        ):
            if tokens:
                rate = _rate(self.rates, kind)
                if rate is None:
                    return None
                total += tokens * rate
        return total


def _input_cost(groups: list[_Sums]) -> str | None:
    currencies = {None if group.rates is None else group.rates.currency for group in groups}
    currency = currencies.pop() if len(currencies) == 1 else None
    costs = [group.cost() for group in groups]
    known = [cost for cost in costs if cost is not None]
    if currency is None or len(known) < len(costs):
        return None
    return f"{sum(known, Decimal(0)).quantize(Decimal('0.0001'))} {currency}"


def _rate(rates: Rates | None, kind: str) -> Decimal | None:
    if rates is None:
        return None
    if not kind:
        return Decimal(0)
    if kind == "uncached":
        return rates.uncached
    return rates.read if kind == "read" else rates.write_rate(kind)


def _documented(kind: str) -> Decimal:
    return DOCUMENTED[kind] if kind else Decimal(0)
