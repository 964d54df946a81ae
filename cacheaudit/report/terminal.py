"""Tables for a terminal: from paid to best case, losses by cause, what-ifs, tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cacheaudit.model.money import plain
from cacheaudit.report import format as fmt
from cacheaudit.report.losses import HEADS, loss_table
from cacheaudit.report.result import AuditResult
from cacheaudit.report.settings import (
    accuracy_words,
    places_of,
    range_words,
    scenario_lines,
    score_words,
    shown,
    steps_text,
)
from cacheaudit.report.verdict import Balance

SHOWN_STEPS = 5
SHOWN_TOOLS = 30
_BOLD = ("Best case", "All losses")


def balance_table(balanced: Balance, verbose: bool, width: int) -> Iterator[RenderableType]:
    """Lay out the steps from what was paid to the best case; they add up exactly."""
    first, *steps, last = steps_text(balanced)
    kept = steps if verbose else steps[:SHOWN_STEPS]
    rows = [
        (fmt.printable(line.title), line.change, line.left, line.alone) for line in (first, *kept)
    ]
    if len(kept) < len(steps):
        more = fmt.plural(len(steps) - len(kept), "more step")
        rows.append((f"… {more}: --verbose", "", "", ""))
    rows.append((last.title, "", last.left, ""))
    yield _table(("", "Saves", "Left", "Alone"), rows, width)
    if balanced.score is not None:
        yield Text(f"Score {balanced.score} of 100: {score_words(balanced)}", style="dim")


def balance_rows(balanced: Balance) -> list[tuple[str, str, str]]:
    """Write what is avoidable and the best case as rows of the totals."""
    places = places_of(balanced)
    unit = "" if balanced.unit == "money" else "ordinary input tokens; "
    share = fmt.whole_percent(balanced.avoidable, balanced.paid)
    notes = [f"{share} of it" if balanced.avoidable > 0 else "", range_words(balanced)]
    score = f"score {balanced.score} of 100" if balanced.score is not None else ""
    return [
        (
            "Avoidable",
            shown(balanced.avoidable, balanced, places),
            unit + "; ".join(note for note in notes if note),
        ),
        ("Best case", shown(balanced.best, balanced, places), score),
    ]


def losses_table(result: AuditResult, width: int) -> Iterator[RenderableType]:
    """Lay out losses by cause and by what each is known from, the remainder included."""
    found = loss_table(result.findings)
    heads = ("Cause", *(HEADS[name] for name in found.columns), "Money", "Share")
    currency = result.totals.cost.currency
    places = fmt.places_for([found.total.lost.cost_text])
    is_priced = found.total.lost.cost is not None
    rows = [
        (
            f"{row.rule} {row.name}".strip(),
            *(fmt.count(row.tokens.get(name, 0)) for name in found.columns),
            fmt.money(row.lost.cost_text if is_priced else None, currency, places, fmt.DASH),
            fmt.ratio(plain(round(row.share, 6))),
        )
        for row in (*found.rows, found.remainder, found.total)
    ]
    yield _table(heads, rows, width)


def scenarios_table(
    result: AuditResult, balanced: Balance | None, width: int
) -> Iterator[RenderableType]:
    """Lay out the settings that were simulated."""
    rows = []
    for line in scenario_lines(result, balanced):
        title = fmt.printable(f"{line.title} ({line.note})" if line.note else line.title)
        if line.refused:
            rows.append((f"{title}: {fmt.printable(line.refused)}", "", "", "", ""))
        else:
            rows.append((title, line.hit_ratio, line.equivalents, line.total, line.saves))
    if rows:
        yield _table(("", "Hit ratio", "Weighted", "Sum", "Saves"), rows, width)


def tools_table(result: AuditResult, width: int) -> Iterator[RenderableType]:
    """Lay out the tools that requests declared."""
    rows = [
        (
            fmt.printable(tool.name),
            fmt.count(tool.tokens),
            *map(fmt.count, (tool.calls, tool.used, tool.versions, tool.churn)),
        )
        for tool in result.tools[:SHOWN_TOOLS]
    ]
    yield _table(("Tool", "Tokens", "Declared", "Used", "Versions", "Changes"), rows, width)
    rest = len(result.tools) - SHOWN_TOOLS
    if rest > 0:
        yield Text(f"… {fmt.plural(rest, 'more tool')}", style="dim")


def accuracy_line(result: AuditResult) -> Iterator[RenderableType]:
    """Say how well the simulation agrees with the report."""
    words = accuracy_words(result)
    if words:
        yield Text(words, style="dim")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    """Make a table whose figures are never cut; the first column gives way instead."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    room = max(12, width - sum(widths[1:]) - 2 * len(widths))
    table.add_column(heads[0], overflow="ellipsis", no_wrap=True, max_width=room)
    for head, wide in zip(heads[1:], widths[1:], strict=True):
        table.add_column(head, justify="right", no_wrap=True, min_width=wide)
    last = len(rows) - 1
    for number, row in enumerate(rows):
        table.add_row(*row, style="bold" if number == last and row[0] in _BOLD else "")
    return table
