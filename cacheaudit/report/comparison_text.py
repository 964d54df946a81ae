"""A comparison as text for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cacheaudit.report import format as fmt
from cacheaudit.report.comparison import CompareResult
from cacheaudit.report.comparison_words import (
    CONCLUSIONS,
    COVERAGE_HEADS,
    COVERAGE_TITLE,
    HEADS,
    OUTCOMES,
    TASK_HEADS,
    cells,
    coverage_cells,
    headline,
    known_measures,
    method,
    paired_by,
    task_cells,
)
from cacheaudit.report.markdown import code, escape

_STYLES = {"better": "bold green", "worse": "bold red"}
_SHOWN_TASKS = 20


def comparison_text(result: CompareResult, *, verbose: bool = False) -> Iterator[RenderableType]:
    """Lay a comparison out: sentence, warnings, four outcomes, pairs, what is not measured."""
    yield Text(headline(result), style="bold")
    yield Text(_sides(result), style="dim")
    for warning in result.warnings:
        yield Text.assemble(("! ", "yellow"), fmt.printable(warning.text))
    for row in result.outcomes:
        style = _STYLES.get(row.conclusion, "bold")
        yield Text()
        yield Text.assemble(
            (f"{OUTCOMES[row.outcome]}: ", "bold"),
            (CONCLUSIONS[row.conclusion], style),
            (f"  {row.reason}", "dim"),
        )
        table = _table(HEADS, right=(1, 2, 3, 4))
        for measure in known_measures(row):
            table.add_row(*cells(measure, result.currency))
        yield table
    limit = len(result.tasks) if verbose else _SHOWN_TASKS
    yield Text("\nTask by task", style="bold")
    table = _table(TASK_HEADS)
    for line in task_cells(result, limit):
        table.add_row(*line)
    yield table
    if (rest := len(result.tasks) - limit) > 0:
        yield Text(f"… {fmt.plural(rest, 'more pair')}: --verbose", style="dim")
    yield from _context(result)
    yield Text()
    yield Text(method(result), style="dim")


def _sides(result: CompareResult) -> str:
    return (
        f"before {fmt.printable(result.before.path)} · after {fmt.printable(result.after.path)}"
        f" · {paired_by(result)} · prices of {result.tool.prices_as_of}"
    )


def _context(result: CompareResult) -> Iterator[RenderableType]:
    yield Text(f"\n{COVERAGE_TITLE}", style="bold")
    table = _table(COVERAGE_HEADS)
    for row in coverage_cells(result):
        table.add_row(*row)
    yield table


def _table(heads: Sequence[str], right: Sequence[int] = ()) -> Table:
    is_headed = any(heads)
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=is_headed
    )
    for index, head in enumerate(heads):
        table.add_column(head, justify="right" if index in right else "left", overflow="fold")
    return table


def comparison_md(result: CompareResult) -> str:
    """Write a comparison as Markdown."""
    head = (
        f"before {code(result.before.path)} · after {code(result.after.path)}"
        f" · {paired_by(result)} · prices of {result.tool.prices_as_of}"
    )
    lines = ["# Before and after", "", f"**{headline(result)}**", "", head, ""]
    lines += [f"- {escape(warning.text)}" for warning in result.warnings]
    for row in result.outcomes:
        lines += ["", f"## {OUTCOMES[row.outcome]}: {CONCLUSIONS[row.conclusion]}", ""]
        lines += [row.reason, ""]
        measures = [cells(measure, result.currency) for measure in known_measures(row)]
        lines += _md_table(HEADS, measures, "---:")
    tasks = [tuple(map(escape, line)) for line in task_cells(result, len(result.tasks))]
    lines += ["", "## Task by task", "", *_md_table(TASK_HEADS, tasks)]
    lines += ["", f"## {COVERAGE_TITLE}", ""]
    lines += _md_table(COVERAGE_HEADS, [tuple(map(escape, row)) for row in coverage_cells(result)])
    lines += ["", method(result)]
    return "\n".join(lines) + "\n"


def _md_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], align: str = "---"
) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|---|" + f"{align}|" * (len(heads) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
