"""Price rows and the machine's state as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cacheaudit.report import format as fmt

_STATES = {
    "ok": ("✓", "green"),
    "missing": ("–", "dim"),  # noqa: RUF001
    "info": ("i", "cyan"),
    "problem": ("✗", "red"),
}
_GROUPS = {
    "python": "Python",
    "scanner": "Reading of transcripts",
    "extra": "Optional parts",
    "encodings": "Token counting",
    "database": "Database",
    "prices": "Prices",
    "agent": "Agents' folders",
}
_RATES = ("uncached", "read", "write_5m", "write_1h", "write_30m", "write_12h", "output")


class PriceLike(Protocol):
    """A price row."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def provider(self) -> str: ...  # noqa: D102
    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def variant(self) -> str: ...  # noqa: D102
    @property
    def currency(self) -> str: ...  # noqa: D102
    @property
    def rates(self) -> dict[str, str]: ...  # noqa: D102
    @property
    def above(self) -> int: ...  # noqa: D102
    @property
    def valid_from(self) -> str | None: ...  # noqa: D102
    @property
    def valid_to(self) -> str | None: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102
    @property
    def checked(self) -> str: ...  # noqa: D102
    @property
    def note(self) -> str | None: ...  # noqa: D102


class CheckLike(Protocol):
    """One check of the machine."""

    @property
    def group(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def detail(self) -> str: ...  # noqa: D102
    @property
    def remedy(self) -> str | None: ...  # noqa: D102


def price_table(rows: Sequence[PriceLike]) -> Iterator[RenderableType]:
    """Lay out price rows, model by model; sources are named once, below."""
    if not rows:
        yield Text("No row holds then.")
        return
    sources = list(dict.fromkeys((row.source, row.checked) for row in rows))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("For a million tokens", overflow="fold")
    units = [unit for unit in _RATES if any(unit in row.rates for row in rows)]
    for unit in units:
        table.add_column(unit.replace("_", " ").capitalize(), justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, style="dim")
    model = ""
    for row in rows:
        if model != f"{row.provider}/{row.model}":
            model = f"{row.provider}/{row.model}"
            table.add_row(Text.assemble((model, "bold"), (f" {row.currency}", "dim")))
        number = sources.index((row.source, row.checked)) + 1
        rates = (row.rates.get(unit, "") for unit in units)
        table.add_row(f"  {_when(row)}", *rates, f"[{number}]")
    yield table
    notes = list(dict.fromkeys(row.note for row in rows if row.note))
    if notes:
        yield Text()
        yield from (Text(note, style="dim") for note in notes)
    yield Text()
    for number, (source, checked) in enumerate(sources, 1):
        yield Text(f"[{number}] {source}, checked {checked}", style="dim")


def _when(row: PriceLike) -> str:
    parts = [row.variant]
    _, _, hours = row.id.rpartition("@")[2].partition("/")[2].partition("/")
    if hours:
        parts.append(f"{hours.replace(',', ' and ')} UTC")
    if row.above:
        parts.append(f"prompts over {row.above:,}")
    if row.valid_from:
        parts.append(f"from {row.valid_from}")
    if row.valid_to:
        parts.append(f"before {row.valid_to}")
    return ", ".join(parts)


def check_table(checks: Sequence[CheckLike], version: str) -> Iterator[RenderableType]:
    """Lay out the state of the machine, group by group."""
    yield Text(f"cacheaudit {version}", style="bold")
    group = ""
    table = Table.grid()
    for check in checks:
        if check.group != group:
            if group:
                yield table
            group = check.group
            yield Text()
            yield Text(_GROUPS.get(group, group), style="bold")
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(no_wrap=True)
            table.add_column(no_wrap=True, min_width=18)
            table.add_column(overflow="fold")
        sign, style = _STATES.get(check.state, ("?", ""))
        detail = Text(fmt.printable(check.detail), style="dim" if check.state == "missing" else "")
        if check.remedy:
            detail.append(f"\n→ {check.remedy}", style="not dim cyan")
        table.add_row(Text(sign, style=style), check.name, detail)
    yield table
