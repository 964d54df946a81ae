"""What a call cost: exact, line by line, or not known and why."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.money import ZERO
from cacheaudit.model.usage import (
    FLAG_NOT_BILLED,
    FLAG_OUTPUT_LOWER_BOUND,
    FLAG_TTL_ASSUMED,
    Usage,
    UsagePart,
)
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.card import RateCard
from cacheaudit.pricing.equivalents import find_card, part_input
from cacheaudit.pricing.table import WRITE_UNITS

UNDATED: Final = "price_date_unknown"
_FIELDS: Final = ("uncached_input", "cache_read", *WRITE_UNITS, "write_other", "output")


class Line(msgspec.Struct, frozen=True):
    """One line of a bill: ``tokens`` (or searches) times ``rate`` is ``amount``."""

    unit: str
    tokens: int
    rate: Decimal
    amount: Decimal
    card: str


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What was billed.

    Attributes:
        amount: Exact sum; ``None`` where it is not known.
        currency: ISO code.
        reason: Why ``amount`` is ``None``.
        upper_bound: Most that it can have been, where that much is known.
        lines: How the sum comes about; also there, as far as known, where ``amount`` is ``None``.
        cards: Ids of the price rows used.
        flags: Assumptions: ``write_ttl_assumed``, ``price_date_unknown``,
            ``output_is_lower_bound``, ``not_billed``.
    """

    amount: Decimal | None
    currency: str = "USD"
    reason: str | None = None
    upper_bound: Decimal | None = None
    lines: tuple[Line, ...] = ()
    cards: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


class _Bill:
    """Collects lines; the first thing that is not known makes the whole sum unknown."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.reason: str | None = None
        self.flags: dict[str, None] = {}
        self.cards: dict[str, RateCard] = {}
        self.beyond: Decimal | None = ZERO

    def line(self, unit: str, tokens: int, rate: Decimal | None, card: RateCard) -> None:
        """Add a line, or note that its rate is not known."""
        if rate is None:
            self.unknown(f"no price for {unit} of {card.model}")
            return
        self.lines.append(Line(unit, tokens, rate, rate * tokens, card.id))

    def unknown(self, reason: str, at_most: Decimal | None = None) -> None:
        """Note why there is no sum; ``at_most``: how much the unknown part can be."""
        self.reason = self.reason or reason
        self.beyond = None if self.beyond is None or at_most is None else self.beyond + at_most

    def cost(self, currency: str) -> Cost:
        """Close the bill."""
        currencies = {card.currency for card in self.cards.values()}
        if len(currencies) > 1:
            self.unknown(f"parts are billed in {' and '.join(sorted(currencies))}")
        total = sum((line.amount for line in self.lines), ZERO)
        known = self.reason is None
        bound = None if known or self.beyond is None else total + self.beyond
        return Cost(
            amount=total if known else None,
            currency=min(currencies, default=currency),
            reason=self.reason,
            upper_bound=bound,
            lines=tuple(self.lines),
            cards=tuple(self.cards),
            flags=tuple(self.flags),
        )


def price_call(call: Call, book: PriceBook) -> Cost:
    """Price one call by what its provider asked at that time.

    Parts (``usage.parts``) are billed one by one, each by its own model and prompt size.
    """
    usage = call.usage
    if usage is None:
        return Cost(amount=None, currency=call.currency, reason="no usage recorded")
    if FLAG_NOT_BILLED in usage.flags:
        return Cost(amount=ZERO, currency=call.currency, flags=(FLAG_NOT_BILLED,))
    bill = _Bill()
    for entry in usage.parts or (usage,):
        _bill_entry(bill, call, entry, book)
    if usage.web_searches:
        _bill_searches(bill, call, usage, book)
    if FLAG_OUTPUT_LOWER_BOUND in usage.flags:
        bill.flags[FLAG_OUTPUT_LOWER_BOUND] = None
    return bill.cost(call.currency)


def cost(usage: Usage, card: RateCard) -> Cost:
    """Price usage by one given row; parts are billed by it too, whatever their model."""
    if FLAG_NOT_BILLED in usage.flags:
        return Cost(amount=ZERO, currency=card.currency, flags=(FLAG_NOT_BILLED,))
    bill = _Bill()
    bill.cards[card.id] = card
    for entry in usage.parts or (usage,):
        _bill_tokens(bill, entry, card, usage.write_other_ttl)
    if usage.web_searches:
        bill.line("web_search", usage.web_searches, card.web_search, card)
    return bill.cost(card.currency)


def _bill_entry(bill: _Bill, call: Call, entry: Usage | UsagePart, book: PriceBook) -> None:
    usage = call.usage
    model = (entry.model if isinstance(entry, UsagePart) else None) or call.model
    size = entry.prompt_size if isinstance(entry, Usage) else None
    if size is None:
        size = part_input(entry)
    card = find_card(book, call, model, size)
    if card is None:
        bill.unknown(_why_not(call, model, book))
        return
    if size is None and _is_tiered(call, model, book):
        bill.unknown(f"prompt size unknown and the price of {card.model} depends on it")
        return
    bill.cards[card.id] = card
    if card.undated:
        bill.flags[UNDATED] = None
    _bill_tokens(bill, entry, card, usage.write_other_ttl if usage else None)


def _bill_searches(bill: _Bill, call: Call, usage: Usage, book: PriceBook) -> None:
    card = find_card(book, call, call.model, usage.prompt_size)
    if card is not None:
        bill.cards[card.id] = card
        bill.line("web_search", usage.web_searches or 0, card.web_search, card)


def _bill_tokens(
    bill: _Bill, entry: Usage | UsagePart, card: RateCard, other_ttl: str | None
) -> None:
    counts = {field: getattr(entry, field) for field in _FIELDS}
    if any(count is not None and count < 0 for count in counts.values()):
        bill.unknown("a token count is negative")
        return
    _bill_input(bill, entry, counts, card)
    for unit, ttl in WRITE_UNITS.items():
        if counts[unit]:
            bill.line(unit, counts[unit], card.write_rate(ttl), card)
    if counts["write_other"]:
        bill.line("write_other", counts["write_other"], card.write_rate(other_ttl), card)
        bill.flags[FLAG_TTL_ASSUMED] = None
    if counts["output"] is None:
        bill.unknown("output tokens unknown")
    elif counts["output"]:
        bill.line("output", counts["output"], card.output, card)


def _bill_input(
    bill: _Bill, entry: Usage | UsagePart, counts: dict[str, int | None], card: RateCard
) -> None:
    uncached, read = counts["uncached_input"], counts["cache_read"]
    if uncached:
        bill.line("uncached", uncached, card.uncached, card)
    if read:
        bill.line("read", read, card.read, card)
    if uncached is not None and read is not None:
        return
    total = entry.total_input if isinstance(entry, Usage) else None
    if total == 0:
        return
    at_most = None if total is None else _at_most(total, counts, card)
    reason = "input tokens unknown" if total is None else "cached part of the input unknown"
    bill.unknown(reason, at_most)


def _at_most(total: int, counts: dict[str, int | None], card: RateCard) -> Decimal:
    """Most that the input tokens without a line of their own can have cost."""
    writes = [counts[field] for field in (*WRITE_UNITS, "write_other")]
    known = [counts["uncached_input"], counts["cache_read"], *writes]
    rest = max(0, total - sum(count for count in known if count))
    rate = max(card.uncached, card.read)
    if all(count is None for count in writes):
        rate = max(rate, *card.writes.values())
    return rate * rest


def _why_not(call: Call, model: str | None, book: PriceBook) -> str:
    usage = call.usage
    return book.why_not(
        call.provider,
        model,
        surface=call.surface,
        speed=usage.speed if usage else None,
        service_tier=usage.service_tier if usage else None,
        geo=usage.inference_geo if usage else None,
    )


def _is_tiered(call: Call, model: str | None, book: PriceBook) -> bool:
    usage = call.usage
    return book.is_tiered(
        call.provider,
        model,
        surface=call.surface,
        speed=usage.speed if usage else None,
        service_tier=usage.service_tier if usage else None,
        geo=usage.inference_geo if usage else None,
    )
