"""Input side of a call in ordinary input tokens of its model: a measure that needs no currency."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from cacheaudit.model.usage import Usage, UsagePart
from cacheaudit.pricing.card import RateCard
from cacheaudit.pricing.names import table_name
from cacheaudit.pricing.table import WRITE_UNITS, parse_toml, price

if TYPE_CHECKING:
    from cacheaudit.model.call import Call
    from cacheaudit.pricing.book import PriceBook

ONE: Final = Decimal(1)


class Multipliers(msgspec.Struct, frozen=True):
    """What a token costs relative to ordinary input.

    Attributes:
        read: A cache read; ``None``: not known.
        writes: A write, by lifetime; an absent lifetime is not known.
        write_ttl: Lifetime of a write that is not labelled.
        source: Where this is documented.
    """

    read: Decimal | None
    writes: dict[str, Decimal]
    write_ttl: str
    source: str

    def write(self, ttl: str | None) -> Decimal | None:
        """Multiplier of a write; ``None`` or ``other``: the default lifetime."""
        return self.writes.get(self.write_ttl if ttl in (None, "other") else ttl or "")


def input_equivalents(
    usage: Usage | UsagePart,
    rates: RateCard | Multipliers | None,
    *,
    write_other_ttl: str | None = None,
    fallback: Multipliers | None = None,
) -> Decimal | None:
    """Weigh uncached, written and read tokens by what they cost; output is left out.

    Args:
        usage: What was consumed. Its ``parts`` are not looked at; see
            :func:`call_input_equivalents`.
        rates: Price row of the model, or documented multipliers.
        write_other_ttl: Lifetime of unlabelled writes, where ``usage`` itself does not say.
        fallback: Multipliers for what ``rates`` does not know.

    Returns:
        Exact to twelve places a token, so sums add up; ``None`` where a multiplier that is
        needed is not known, or the split between uncached and read tokens is not.
    """
    if usage.uncached_input is None or usage.cache_read is None:
        return None
    other = (usage.write_other_ttl if isinstance(usage, Usage) else None) or write_other_ttl
    total = Decimal(usage.uncached_input)
    pairs: list[tuple[int, Decimal | None]] = []
    if usage.cache_read:
        pairs.append((usage.cache_read, _read(rates) or _read(fallback)))
    for field, ttl in (*WRITE_UNITS.items(), ("write_other", other)):
        tokens = getattr(usage, field)
        if tokens:
            weight = _write(rates, ttl)
            pairs.append((tokens, _write(fallback, ttl) if weight is None else weight))
    for tokens, weight in pairs:
        if weight is None:
            return None
        total += tokens * weight
    return total


def _read(rates: RateCard | Multipliers | None) -> Decimal | None:
    if rates is None:
        return None
    return rates.read_ratio if isinstance(rates, RateCard) else rates.read


def _write(rates: RateCard | Multipliers | None, ttl: str | None) -> Decimal | None:
    if rates is None:
        return None
    return rates.write_ratio(ttl) if isinstance(rates, RateCard) else rates.write(ttl)


def call_input_equivalents(call: Call, book: PriceBook) -> Decimal | None:
    """Weigh a whole call, part by part, in ordinary input tokens of the call's own model.

    A part that another model served is converted by the ratio of the two input prices; where
    one of them is not known, so is the sum.
    """
    usage = call.usage
    if usage is None:
        return None
    fallback = default_multipliers(call.provider, usage.dialect)
    own = find_card(book, call, call.model, usage.prompt_size)
    if not usage.parts:
        return input_equivalents(usage, own, fallback=fallback)
    total = Decimal(0)
    for part in usage.parts:
        card = find_card(book, call, part.model or call.model, part_input(part))
        found = input_equivalents(
            part, card, write_other_ttl=usage.write_other_ttl, fallback=fallback
        )
        scale = _scale(call, part, own, card)
        if found is None or scale is None:
            return None
        total += found * scale
    return total


def _scale(
    call: Call, part: UsagePart, own: RateCard | None, card: RateCard | None
) -> Decimal | None:
    if part.model is None or part.model == call.model:
        return ONE
    if own is None or card is None or not own.uncached or own.currency != card.currency:
        return None
    return card.uncached / own.uncached


def part_input(part: Usage | UsagePart) -> int | None:
    """All input tokens of an entry by its parts, or ``None`` where the split is not known."""
    if part.uncached_input is None or part.cache_read is None:
        return None
    writes = (getattr(part, field) or 0 for field in (*WRITE_UNITS, "write_other"))
    return part.uncached_input + part.cache_read + sum(writes)


def find_card(
    book: PriceBook, call: Call, model: str | None, total_input: int | None
) -> RateCard | None:
    """Look up the row for a call, or for one of its parts."""
    usage = call.usage
    return book.card(
        call.provider,
        model,
        None if call.relative_time else call.at,
        surface=call.surface,
        speed=usage.speed if usage else None,
        service_tier=usage.service_tier if usage else None,
        geo=usage.inference_geo if usage else None,
        total_input=total_input,
    )


def default_multipliers(provider: str | None, dialect: str = "") -> Multipliers | None:
    """Documented multipliers of a provider, or of the provider whose dialect was spoken.

    A plain usage log that names no provider is weighed like Claude's (write 1.25 or 2, read 0.1);
    whoever shows the result says so.
    """
    known = _defaults()
    if provider is not None:
        return known.get(table_name(provider))
    return known.get("anthropic") if dialect.startswith(("anthropic", "plain")) else None


@cache
def _defaults() -> Mapping[str, Multipliers]:
    where = "default multipliers"
    file = Path(__file__).with_name("data") / "_defaults.toml"
    raw = parse_toml(file.read_text("utf-8"), where)
    return {
        name: Multipliers(
            read=price(entry["read"], f"{where}: {name}") if "read" in entry else None,
            writes={
                ttl: price(entry[unit], f"{where}: {name}")
                for unit, ttl in WRITE_UNITS.items()
                if unit in entry
            },
            write_ttl=entry["write_ttl"],
            source=entry["source"],
        )
        for name, entry in raw.items()
        if isinstance(entry, dict)
    }
