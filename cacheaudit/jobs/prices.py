"""Price rows with their dates and sources, as the tables have them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from cacheaudit.errors import UsageError
from cacheaudit.model.clock import day
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.card import RateCard
from cacheaudit.pricing.names import candidates, infer_table, table_name
from cacheaudit.pricing.plan import Window, build_plan
from cacheaudit.pricing.table import Table

PRICES_SCHEMA = "cacheaudit.prices/1"


class PriceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One price row; rates are for a million tokens, ``web_search`` for a thousand searches."""

    id: str
    provider: str
    model: str
    variant: str
    currency: str
    rates: dict[str, str]
    above: int
    valid_from: str | None
    valid_to: str | None
    source: str
    checked: str
    note: str | None


class PricesResult(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that were asked for, newest first within a model and kind of service."""

    as_of: str
    at: str | None
    rows: list[PriceRow]
    schema: str = PRICES_SCHEMA


def prices(
    model: str | None = None,
    *,
    provider: str | None = None,
    at: float | None = None,
    files: Sequence[Path] = (),
) -> PricesResult:
    """Look price rows up.

    Args:
        model: A model id in any form that records use, or a part of one; none means all.
        provider: Only this provider's table.
        at: Only rows that hold at this moment.
        files: Price files that go before the built-in tables.

    Raises:
        UsageError: No table has such a provider or model.
    """
    book = PriceBook(files)
    tables = _tables(book, provider)
    chosen: dict[tuple[str, str], tuple[Table, str]] = {}
    for table, name in _chosen(tables, model, provider):
        # The user's own tables come first, and what they say of a model is all that counts for it.
        chosen.setdefault((table.provider, name), (table, name))
    if not chosen:
        raise _unknown(tables, model or "")
    on = None if at is None else day(at).isoformat()
    rows = [
        _row(card)
        for table, name in chosen.values()
        for card in sorted(_cards(table, name), key=_order)
        if on is None or _holds(card, on)
    ]
    return PricesResult(as_of=book.as_of, at=on, rows=rows)


def _tables(book: PriceBook, provider: str | None) -> list[Table]:
    tables = book.tables()
    if provider is None:
        return tables
    wanted = table_name(provider)
    found = [table for table in tables if table.provider == wanted]
    if not found:
        known = sorted({table.provider for table in tables})
        raise UsageError(f"There is no price table of {provider!r}.", f"Known: {', '.join(known)}.")
    return found


def _chosen(
    tables: Sequence[Table], model: str | None, provider: str | None
) -> Iterator[tuple[Table, str]]:
    """Yield models: the one that is meant, in its own table first, else all that contain it."""
    if model is None:
        yield from ((table, name) for table in tables for name in table.models)
        return
    own = infer_table(model) if provider is None else None
    exact = [
        (table, name)
        for table in sorted(tables, key=lambda t: t.provider != own)
        if (name := _exact(table, model)) is not None
    ]
    if exact:
        yield from exact
        return
    part = model.strip().lower()
    yield from ((table, name) for table in tables for name in table.models if part in name.lower())


def _exact(table: Table, model: str) -> str | None:
    for form in candidates(model):
        if form in table.names:
            return table.names[form]
    return None


def _unknown(tables: Sequence[Table], model: str) -> UsageError:
    names = {name for table in tables for name in table.models}
    near = difflib.get_close_matches(model.lower(), names, n=3)
    hint = f"Near: {', '.join(near)}." if near else "`cacheaudit prices` lists every model."
    return UsageError(
        f"No price table has a model {model!r}.", f"{hint} --prices FILE adds a price."
    )


def _cards(table: Table, name: str) -> Iterator[RateCard]:
    model = table.model(name)
    for variant in dict.fromkeys(row.when for row in model.rows):
        for window in build_plan(table, model, variant, None).windows:
            if window is not None:
                yield from _of_window(window)


def _of_window(window: Window) -> Iterator[RateCard]:
    yield from window.base.cards
    for _, tiers in window.peaks:
        yield from tiers.cards


def _order(card: RateCard) -> tuple[bool, str, tuple[int, ...], int]:
    newest = tuple(-int(part) for part in (card.valid_from or "0-0-0").split("-"))
    return (card.variant != "standard", card.variant, newest, card.above)


def _holds(card: RateCard, on: str) -> bool:
    return (card.valid_from is None or card.valid_from <= on) and (
        card.valid_to is None or on < card.valid_to
    )


def _row(card: RateCard) -> PriceRow:
    return PriceRow(
        id=card.id,
        provider=card.provider,
        model=card.model,
        variant=card.variant,
        currency=card.currency,
        rates=card.per_million(),
        above=card.above,
        valid_from=card.valid_from,
        valid_to=card.valid_to,
        source=card.source,
        checked=card.checked,
        note=card.note,
    )
