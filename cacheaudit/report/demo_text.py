"""The demo as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from cacheaudit.report import format as fmt
from cacheaudit.report.comparison_text import comparison_text
from cacheaudit.report.demo import DemoResult, DemoSide
from cacheaudit.report.renderer import View
from cacheaudit.report.tasks_text import tasks_text

_SHOWN = 4


def demo_text(result: DemoResult, view: View, *, is_kept: bool) -> Iterator[RenderableType]:
    """Lay it out: what this is, both ledgers with their audits, the comparison."""
    yield Text(
        "A coding agent on the local engine. Tools, requests, usage and times are real; what the"
        " model says is scripted. One token a byte, at the prices of Claude Opus 5.",
        style="dim",
    )
    for title, side in (("Before: a naive loop", result.before), ("After", result.after)):
        yield Text(f"\n{title}", style="bold underline")
        yield from tasks_text(side.ledger, view)
        yield Text()
        yield Text(_findings(side))
    said = ", ".join(f"{count} {word}" for word, count in sorted(result.decisions.items()))
    yield Text(
        f"Compaction: {said or 'never a question'}. Keep-alive:"
        f" {fmt.plural(result.refreshes, 'refresh', 'refreshes')} that did what they were for."
    )
    yield Text("\nCompared", style="bold underline")
    yield from comparison_text(result.compared, verbose=view.verbose)
    if is_kept:
        yield Text(f"\ncacheaudit audit {result.before.file}", style="dim")
        yield Text(f"cacheaudit audit {result.after.file}", style="dim")


def _findings(side: DemoSide) -> str:
    rows = []
    for found in side.findings[:_SHOWN]:
        lost = f", {fmt.count(found.tokens)} tokens lost" if found.tokens else ""
        rows.append(f"  {found.title} [{found.rule}]: {fmt.plural(found.calls, 'call')}{lost}")
    more = len(side.findings) - _SHOWN
    if more > 0:
        rows.append(f"  and {more} more")
    return "\n".join(["Its audit finds:", *rows]) if rows else "Its audit finds nothing."
