"""Totals by key as rows of cells, for tables of any format."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cacheaudit.report import format as fmt
from cacheaudit.report.result import Group, Totals
from cacheaudit.report.summary import cost_text, hit_ratio, paid, tokens, weight_text

WEIGHT = "Weighted"
GROUP_HEADS = ("Calls", "Uncached", "Written", "Read", "Output", "Hit ratio", WEIGHT, "Cost")
PARTS = ("uncached_input", "cache_write", "cache_read", "output")
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
    return (
        f"{totals.calls:,}",
        *(tokens(totals, part, number=number) for part in PARTS),
        hit_ratio(totals, fmt.DASH),
        weight_text(totals, number),
        cost_text(totals, places),
    )


def _width(rows: Sequence[Sequence[str]]) -> int:
    columns = zip(GROUP_HEADS, *rows, strict=True)
    return sum(max(map(len, column)) + _GUTTER for column in columns)
