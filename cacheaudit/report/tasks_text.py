"""The ledger of whole tasks as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cacheaudit.report import format as fmt
from cacheaudit.report.comparison_words import seconds
from cacheaudit.report.renderer import View
from cacheaudit.report.renderers.text import group_table
from cacheaudit.report.result import Totals
from cacheaudit.report.summary import cost_text, hit_ratio, tokens
from cacheaudit.report.tasks import Spread, TaskRow, TasksResult, Times

_SHOWN = 20
_TIMES = (
    ("first_response", "to the first token"),
    ("generation", "generation"),
    ("whole", "whole call"),
    ("tool", "tools"),
)


def tasks_text(result: TasksResult, view: View) -> Iterator[RenderableType]:
    """Lay it out: what a completion cost, tasks, purposes, times; lanes where asked for."""
    yield Text(headline(result), style="bold")
    yield Text(
        f"{fmt.plural(result.scope.calls, 'call')} · "
        f"{fmt.plural(result.scope.sessions, 'session')} · prices of {result.tool.prices_as_of}",
        style="dim",
    )
    if result.tasks:
        yield Text("\nTasks", style="bold")
        yield _tasks(result, len(result.tasks) if view.verbose else _SHOWN)
        rest = len(result.tasks) - _SHOWN
        if rest > 0 and not view.verbose:
            yield Text(f"… {fmt.plural(rest, 'more task')}: --verbose", style="dim")
    if result.by_purpose:
        yield Text("\nWhat it was spent for", style="bold")
        yield group_table("Purpose", result.by_purpose, result.totals, view)
    yield Text("\nWhere the time went", style="bold")
    yield _times(result.times, result.task_seconds)
    if view.verbose:
        for row in result.tasks:
            yield Text(f"\n{_name(row)}", style="bold")
            yield _lanes(row)
    for quality in result.data_quality:
        examples = f": {quality.examples[0]}" if quality.examples else ""
        yield Text(f"{quality.kind} ({quality.count}){fmt.printable(examples)}", style="dim")


def headline(result: TasksResult) -> str:
    """Say in one sentence what an accepted task cost."""
    found = result.completions
    named = sum(row.task is not None for row in result.tasks)
    said = f"{fmt.plural(named, 'task')}: {found.accepted} accepted, {found.rejected} rejected"
    if found.undecided:
        said += f", {found.undecided} undecided"
    if found.per_accepted is None:
        return f"{said}. No cost of an accepted task: {found.reason}."
    cost = fmt.money(found.per_accepted, found.currency, 4)
    return f"{said}. An accepted task cost {cost}, failures included."


def _name(row: TaskRow) -> str:
    return fmt.printable(row.task) if row.task is not None else "(no task)"


def _tasks(result: TasksResult, limit: int) -> Table:
    table = _table(("Task", "Outcome", "Calls", "Retries", "Cost", "Input", "Read", "Time"))
    places = fmt.places_for(row.totals.cost.computed for row in result.tasks)
    for row in result.tasks[:limit]:
        table.add_row(
            _name(row),
            row.outcome or fmt.DASH,
            fmt.count(row.calls),
            fmt.count(row.retries),
            _computed(row.totals, places),
            tokens(row.totals, "total_input"),
            hit_ratio(row.totals, fmt.DASH),
            fmt.DASH if row.seconds is None else seconds(row.seconds),
        )
    return table


def _lanes(row: TaskRow) -> Table:
    table = _table(("Lane", "Calls", "Own cost", "With lanes below", "Input", "Read"))
    places = fmt.places_for([lane.whole.cost.computed for lane in row.lanes])
    for lane in row.lanes:
        what = ", ".join(f"{count} {purpose}" for purpose, count in lane.purposes.items())
        table.add_row(
            "  " * lane.depth + fmt.printable(f"{lane.session} {lane.lane}"),
            what,
            _computed(lane.totals, places),
            _computed(lane.whole, places),
            tokens(lane.totals, "total_input"),
            hit_ratio(lane.totals, fmt.DASH),
        )
    return table


def _computed(totals: Totals, places: int) -> str:
    """Write what price tables say, where they say it of some call at least."""
    return fmt.DASH if totals.cost.computed is None else cost_text(totals, places)


def _times(times: Times, whole: Spread) -> Table:
    table = _table(("", "Calls", "Sum", "Typical (p50)", "Slow (p95)"))
    rows = [(label, getattr(times, name)) for name, label in _TIMES]
    for label, found in [*rows, ("task, start to end", whole)]:
        table.add_row(
            label,
            fmt.count(found.calls),
            *(
                fmt.DASH if value is None else seconds(value)
                for value in (found.total, found.p50, found.p95)
            ),
        )
    return table


def _table(heads: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, head in enumerate(heads):
        table.add_column(head, justify="left" if index == 0 else "right", overflow="fold")
    return table
