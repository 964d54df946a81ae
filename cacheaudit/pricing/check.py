"""Says what is wrong with a price table: gaps, overlaps, floats, rows without source or date.

Floats and rows without a source are refused while a row is read; see ``Table``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from itertools import pairwise

from cacheaudit.errors import PricingError
from cacheaudit.pricing.table import Hours, Model, Row, Table

_FIRST = dt.date.min
_LAST = dt.date.max


def check_table(table: Table) -> Iterator[str]:
    """Yield one sentence for each fault; nothing for a sound table."""
    seen: dict[str, str] = {}
    for name in table.models:
        where = f"{table.where}: {name}"
        try:
            model = table.model(name)
        except PricingError as error:
            yield str(error)
            continue
        yield from _check_model(model, where)
        if name.lower() in seen:
            yield f"{where}: also filed as {seen[name.lower()]!r}."
        seen[name.lower()] = name
    for other, name in table.names.items():
        if other in seen and seen[other] != name:
            yield f"{table.where}: {other!r} names both {name!r} and {seen[other]!r}."


def _check_model(model: Model, where: str) -> Iterator[str]:
    if not model.rows:
        yield f"{where}: no rows."
    if model.rows and not any(row.when == "standard" for row in model.rows):
        yield f"{where}: no row for ordinary service."
    for row in model.rows:
        yield from _check_row(row, where)
    for kind in dict.fromkeys(row.when for row in model.rows):
        yield from _check_windows(
            [row for row in model.rows if row.when == kind], f"{where}, {kind}"
        )


def _check_row(row: Row, where: str) -> Iterator[str]:
    if not row.source.strip():
        yield f"{where}: a row has no source."
    if row.above < 0:
        yield f"{where}: 'above' is negative."
    if row.valid_from and row.valid_to and row.valid_from >= row.valid_to:
        yield f"{where}: 'to' is not after 'from'."


def _check_windows(rows: list[Row], where: str) -> Iterator[str]:
    spans: dict[tuple[dt.date, dt.date], list[Row]] = {}
    for row in rows:
        spans.setdefault((row.valid_from or _FIRST, row.valid_to or _LAST), []).append(row)
    for (_, end), (start, _) in pairwise(sorted(spans)):
        if start < end:
            yield f"{where}: windows overlap at {start}."
        elif start > end:
            yield f"{where}: nothing holds from {end} to {start}."
    for (start, _), members in spans.items():
        yield from _check_window(members, f"{where}, from {start}")


def _check_window(rows: list[Row], where: str) -> Iterator[str]:
    groups: dict[tuple[Hours, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.hours, []).append(row)
    if () not in groups:
        yield f"{where}: no row for the rest of the day."
    for members in groups.values():
        thresholds = [row.above for row in members]
        if 0 not in thresholds:
            yield f"{where}: no row for small prompts."
        if len(set(thresholds)) != len(thresholds):
            yield f"{where}: two rows for the same prompt size."
    yield from _check_hours([hours for group in groups for hours in group], where)


def _check_hours(spans: Iterable[Hours], where: str) -> Iterator[str]:
    taken: set[tuple[int, int]] = set()
    for span in spans:
        minutes = (
            range(span.start, span.end)
            if span.start <= span.end
            else [*range(span.start, 24 * 60), *range(span.end)]
        )
        mine = {(day, minute) for day in span.days for minute in minutes}
        if taken & mine:
            yield f"{where}: hours overlap."
        taken |= mine
