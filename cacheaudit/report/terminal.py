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


def balance_table(balanced: Balance, verbose: bool) -> Iterator[RenderableType]:
    """Lay out the steps from what was paid to the best case; they add up exactly."""
    table = _table(("", "Saves", "Left", "Alone"))
    first, *steps, last = steps_text(balanced)
    kept = steps if verbose else steps[:SHOWN_STEPS]
    for line in (first, *kept):
        table.add_row(fmt.printable(line.title), line.change, line.left, line.alone)
    if len(kept) < len(steps):
        table.add_row(f"… {fmt.plural(len(steps) - len(kept), 'more step')}", "", "", "")
    table.add_row(Text(last.title, style="bold"), "", Text(last.left, style="bold"), "")
    yield table
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


def losses_table(result: AuditResult) -> Iterator[RenderableType]:
    """Lay out losses by cause and by what each is known from, the remainder included."""
    found = loss_table(result.findings)
    heads = ("Cause", *(HEADS[name] for name in found.columns), "Money", "Share")
    table = _table(heads)
    currency = result.totals.cost.currency
    places = fmt.places_for([found.total.lost.cost_text])
    for row in (*found.rows, found.remainder, found.total):
        money = None if found.total.lost.cost is None else row.lost.cost_text
        table.add_row(
            f"{row.rule} {row.name}".strip(),
            *(fmt.count(row.tokens.get(name, 0)) for name in found.columns),
            fmt.money(money, currency, places, fmt.DASH),
            fmt.ratio(plain(round(row.share, 6))),
            style="bold" if row is found.total else "",
        )
    yield table


def scenarios_table(result: AuditResult, balanced: Balance | None) -> Iterator[RenderableType]:
    """Lay out the settings that were simulated."""
    lines = scenario_lines(result, balanced)
    if not lines:
        return
    table = _table(("", "Hit ratio", "Weighted", "Sum", "Saves"))
    for line in lines:
        title = fmt.printable(f"{line.title} ({line.note})" if line.note else line.title)
        if line.refused:
            table.add_row(f"{title}: {fmt.printable(line.refused)}", "", "", "", "")
            continue
        saves = Text(line.saves, style="red" if line.is_worse else "")
        table.add_row(title, line.hit_ratio, line.equivalents, line.total, saves)
    yield table


def tools_table(result: AuditResult) -> Iterator[RenderableType]:
    """Lay out the tools that requests declared."""
    table = _table(("Tool", "Tokens", "Declared", "Used", "Versions", "Changes"))
    for tool in result.tools[:SHOWN_TOOLS]:
        figures = (tool.calls, tool.used, tool.versions, tool.churn)
        table.add_row(
            fmt.printable(tool.name), fmt.count(tool.tokens), *(f"{n:,}" for n in figures)
        )
    yield table
    rest = len(result.tools) - SHOWN_TOOLS
    if rest > 0:
        yield Text(f"… {fmt.plural(rest, 'more tool')}", style="dim")


def accuracy_line(result: AuditResult) -> Iterator[RenderableType]:
    """Say how well the simulation agrees with the report."""
    words = accuracy_words(result)
    if words:
        yield Text(words, style="dim")


def _table(heads: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(heads[0], overflow="ellipsis", no_wrap=True)
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    return table
