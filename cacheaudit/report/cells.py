"""Figures of the page: as shown, and as they really are."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec

from cacheaudit.model.money import decimal, plain
from cacheaudit.report import format as fmt
from cacheaudit.report.groups import GROUP_HEADS, PARTS, WEIGHT
from cacheaudit.report.result import Group, LossRow, Totals
from cacheaudit.report.summary import cost_text, hit_ratio, paid, tokens, weight_text

SHOWN_GROUPS = 50


class Cell(msgspec.Struct, frozen=True):
    """A figure as shown and as it really is."""

    text: str
    exact: str = ""


class LedgerRow(msgspec.Struct, frozen=True):
    """Totals of one key."""

    key: str
    cells: tuple[Cell, ...]


class LedgerTable(msgspec.Struct, frozen=True, kw_only=True):
    """Totals by key, the first ones where there are many."""

    name: str
    heads: tuple[str, ...]
    rows: tuple[LedgerRow, ...]
    total: int


def cell(
    value: str | Decimal | None,
    currency: str,
    places: int | None = None,
    unknown: str = fmt.UNKNOWN,
) -> Cell:
    """Write an amount; ``places``: as its own size asks for."""
    if value is None:
        return Cell(unknown)
    text = value if isinstance(value, str) else plain(value)
    digits = fmt.places_for([text]) if places is None else places
    return Cell(fmt.money(text, currency, digits, unknown), f"{text} {currency}")


def loss_cell(row: LossRow | None, currency: str, places: int | None = None) -> Cell:
    """Write a loss in money, or in ordinary input tokens where no price is known."""
    if row is None:
        return Cell(fmt.DASH)
    if row.cost is None:
        return Cell(f"{fmt.equivalents(row.input_equivalents)} input tokens")
    return cell(row.cost, currency, places)


def ledger(name: str, groups: Sequence[Group]) -> LedgerTable:
    """Lay out totals by key; what the records state stands beside what was computed."""
    places = fmt.places_for(paid(group.totals)[0] for group in groups)
    has_stated = any(group.totals.cost.reported is not None for group in groups)
    # Sums over rows of calls, as those by day and by lane, know no weight.
    weight = any(group.totals.input_equivalents is not None for group in groups)
    heads = tuple(head for head in GROUP_HEADS if weight or head != WEIGHT)
    return LedgerTable(
        name=name,
        heads=heads + (("Reported", "Difference") if has_stated else ()),
        rows=tuple(
            LedgerRow(group.key, _cells(group.totals, places, has_stated, weight))
            for group in groups[:SHOWN_GROUPS]
        ),
        total=len(groups),
    )


def _cells(totals: Totals, places: int, has_stated: bool, weight: bool) -> tuple[Cell, ...]:
    cost = totals.cost
    value, origin = paid(totals)
    cells = [
        Cell(f"{totals.calls:,}"),
        *(Cell(tokens(totals, part)) for part in PARTS),
        Cell(hit_ratio(totals, fmt.DASH)),
        *([Cell(weight_text(totals))] if weight else []),
        Cell(
            cost_text(totals, places),
            f"{value} {cost.currency}, {origin}" if value is not None else "",
        ),
    ]
    if has_stated:
        apart = None
        is_whole = not cost.unpriced_calls and cost.reported_calls >= totals.calls
        if cost.computed is not None and cost.reported is not None and is_whole:
            apart = decimal(cost.reported) - decimal(cost.computed)
        cells.append(cell(cost.reported, cost.currency, places, fmt.DASH))
        cells.append(cell(apart, cost.currency, places, fmt.DASH))
    return tuple(cells)
