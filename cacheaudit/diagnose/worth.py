"""What doing it another way would have cost: tokens moved from one rate to another.

Rules know tokens; prices come in here, so that advice holds for the prices in force and not for a
rule of thumb. A saving may be negative.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import msgspec

from cacheaudit.diagnose.money import DOCUMENTED, Prices, Rates, rates_of
from cacheaudit.model.call import Call, Session
from cacheaudit.model.finding import Loss
from cacheaudit.model.usage import Usage


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
    calls = [session.calls[index] for index in stage.calls]
    usages = [call.usage for call in calls if call.usage is not None]
    read = sum(usage.cache_read or 0 for usage in usages)
    written = sum(usage.cache_write or 0 for usage in usages)
    uncached = sum(usage.uncached_input or 0 for usage in usages)
    output = sum(usage.output or 0 for usage in usages)
    number = f"{len(calls)} call{'' if len(calls) == 1 else 's'}"
    line = (
        f"{stage.label}: {number}, {written:,} tokens written, {read:,} read, {uncached:,} "
        f"uncached, {output:,} of output"
    )
    cost = _input_cost(calls, book)
    return f"{line}; input cost {cost}." if cost is not None else f"{line}."


def _input_cost(calls: list[Call], book: Prices | None) -> str | None:
    """Sum the tokens by their rates first: a stage has many calls and few prices."""
    sums: dict[int, tuple[Rates, dict[str, int]]] = {}
    for call in calls:
        usage = call.usage
        rates = None if usage is None else rates_of(call, usage, book)
        if usage is None or rates is None:
            return None
        _add_parts(sums.setdefault(id(rates), (rates, {}))[1], usage)
    if len({rates.currency for rates, _ in sums.values()}) != 1:
        return None
    total, currency = Decimal(0), ""
    for rates, parts in sums.values():
        currency = rates.currency
        for kind, tokens in parts.items():
            rate = _rate(rates, kind)
            if rate is None:
                return None
            total += tokens * rate
    return f"{total.quantize(Decimal('0.0001'))} {currency}"


def _add_parts(parts: dict[str, int], usage: Usage) -> None:
    for kind, tokens in (
        ("uncached", usage.uncached_input),
        ("read", usage.cache_read),
        ("5m", usage.write_5m),
        ("1h", usage.write_1h),
        ("30m", usage.write_30m),
        ("12h", usage.write_12h),
    ):
        if tokens:
            parts[kind] = parts.get(kind, 0) + tokens
    if usage.write_other:
        kind = usage.write_other_ttl or "other"
        parts[kind] = parts.get(kind, 0) + usage.write_other


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
