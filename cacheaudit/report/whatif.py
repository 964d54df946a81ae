"""Edits and what they save, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cacheaudit.report import format as fmt
from cacheaudit.report.result import SavingRow, Scenario, WhatIf
from cacheaudit.report.verdict import scenario


def what_if_text(result: WhatIf, currency: str) -> Iterator[RenderableType]:
    """Lay out each setting with its bill, then the steps that add up."""
    rows = [row for row in map(scenario, (result.baseline, *result.scenarios)) if row is not None]
    every = scenario(result.all_fixes)
    if every is not None and len(result.waterfall) > 1:
        rows.append(every)
    yield Text("What the edits save", style="bold")
    yield _bills(rows, currency)
    if len(result.waterfall) > 1:
        yield Text()
        yield Text("One after another", style="bold")
        yield _steps(result, currency)
    yield from _refusals(rows)


def _bills(rows: list[Scenario], currency: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("")
    for head in ("calls", "read", "written", "hits", "equivalents", "cost", "saves"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        if row.refused is not None:
            continue
        table.add_row(
            fmt.printable(row.name),
            fmt.count(row.calls),
            fmt.count_of(row.cache_read, row.unknown_calls.get("cache_read", 0)),
            fmt.count_of(row.cache_write, row.unknown_calls.get("cache_write", 0)),
            fmt.ratio(row.hit_ratio, fmt.DASH),
            fmt.equivalents(row.input_equivalents),
            fmt.amount(row.cost, currency, fmt.DASH),
            _saves(row.saves, currency),
            style="yellow" if _is_worse(row.saves) else "",
        )
    return table


def _steps(result: WhatIf, currency: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("")
    for head in ("alone", "on top of those before"):
        table.add_column(head, justify="right", no_wrap=True)
    for step in result.waterfall:
        table.add_row(
            fmt.printable(step.edit or step.name),
            _saves(step.alone, currency),
            _saves(step.saves, currency),
        )
    return table


def _refusals(rows: list[Scenario]) -> Iterator[RenderableType]:
    told = [f"{row.name}: {row.refused}" for row in rows if row.refused is not None]
    told += [f"{name} left out: {why}" for row in rows for name, why in row.left_out.items()]
    if told:
        yield Text()
    for line in told:
        yield Text(fmt.printable(line), style="dim")


def _saves(row: SavingRow | None, currency: str) -> str:
    if row is None:
        return fmt.DASH
    if row.cost is not None:
        return fmt.amount(row.cost, currency)
    return fmt.equivalents(row.input_equivalents)


def _is_worse(row: SavingRow | None) -> bool:
    if row is None:
        return False
    return (row.cost or row.input_equivalents or "0").startswith("-")
