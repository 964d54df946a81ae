"""Totals by key as rows of cells, for tables of any format."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cacheaudit.report import format as fmt
from cacheaudit.report.result import Group, Totals
from cacheaudit.report.summary import paid, writes

GROUP_HEADS = ("Calls", "Uncached", "Written", "Read", "Output", "Hit ratio", "Cost")
_GUTTER = 2


def group_cells(
    groups: Sequence[Group], totals: Totals | None = None, width: int | None = None
) -> list[tuple[str, ...]]:
    """Write one row a group, and one for the whole where it is given.

    Args:
        groups: The groups.
        totals: Of all groups together.
        width: Columns that the cells may take; full numbers are shortened where they do not fit.
    """
    every = [group.totals for group in groups] + ([totals] if totals is not None else [])
    places = fmt.places_for(paid(item)[0] for item in every)
    rows = [_cells(item, fmt.count, places) for item in every]
    if width is not None and _width(rows) > width:
        return [_cells(item, fmt.short_count, places) for item in every]
    return rows


def _cells(totals: Totals, number: Callable[[int | None], str], places: int) -> tuple[str, ...]:
    output = number(totals.output)
    value, origin = paid(totals)
    cost = fmt.money(value, totals.cost.currency, places, fmt.DASH)
    if totals.cost.unpriced_calls and origin == "computed":
        cost = f"≥ {cost}"
    return (
        f"{totals.calls:,}",
        number(totals.uncached_input),
        number(writes(totals)),
        number(totals.cache_read),
        f"≥ {output}" if totals.output_is_lower_bound else output,
        fmt.ratio(totals.hit_ratio, fmt.DASH),
        cost,
    )


def _width(rows: Sequence[Sequence[str]]) -> int:
    columns = zip(GROUP_HEADS, *rows, strict=True)
    return sum(max(map(len, column)) + _GUTTER for column in columns)
