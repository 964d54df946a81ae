"""A probe's outcome as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cacheaudit.agent.fan_out.cells import Cell
from cacheaudit.agent.probe.conclude import Conclusion
from cacheaudit.agent.probe.price import Estimate
from cacheaudit.agent.probe.run import Row
from cacheaudit.model.money import plain
from cacheaudit.report import format as fmt

_NAMES = {
    "prepare": "1 prepare",
    "confirm": "2 the same again",
    "new_question": "3 another question",
    "changed_beginning": "4 another beginning",
}
_STYLES = {"confirmed": "green", "unknown": "yellow", "partly": "yellow"}


def rows_table(rows: Sequence[Row], found: Conclusion) -> Iterator[RenderableType]:
    """Lay out the requests of a probe and what they show."""
    table = _table("request", "input", "read", "written", "uncached", "output", "first text", "all")
    for row in rows:
        table.add_row(
            _NAMES.get(row.case, row.case),
            fmt.count(row.total_input),
            fmt.count(row.cache_read),
            fmt.count(row.cache_write),
            fmt.count(row.uncached_input),
            fmt.count(row.output),
            _seconds(row.first_text_s),
            _seconds(row.request_s),
        )
    yield table
    yield Text()
    words = found.verdict.replace("_", " ")
    yield Text.assemble("Reuse of the prefix: ", (words, _STYLES.get(found.verdict, "red")))
    for reason in found.reasons:
        yield Text(f"  {reason}")


def cells_table(cells: Sequence[Cell]) -> Iterator[RenderableType]:
    """Lay out the four cells of a fan-out."""
    table = _table("common end", "others", "written", "read", "uncached", "failed")
    for cell in cells:
        uncached = [row.uncached_input for row in cell.rows]
        known = [count for count in uncached if count is not None]
        table.add_row(
            "marked" if cell.mark else "unmarked",
            "wait for the first" if cell.wait else "at once",
            fmt.count(cell.cache_write),
            fmt.count(cell.cache_read),
            fmt.count(sum(known) if len(known) == len(uncached) else None),
            str(sum(not row.complete for row in cell.rows)),
        )
    yield table


def offer(estimate: Estimate, model: str, where: str) -> str:
    """Say what will be sent and what it costs at most."""
    size = f"{estimate.requests} requests of about {estimate.tokens:,} tokens to {where} ({model})"
    if estimate.cost is None:
        return f"At most {size}. What that costs is not known: {estimate.reason}."
    amount = fmt.amount(plain(estimate.cost), estimate.currency)
    return f"At most {size}, {amount} at most by the prices of {estimate.source}."


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _seconds(value: float | None) -> str:
    return fmt.DASH if value is None else f"{value:.2f} s"
