"""The catalogue of rules and single rules as text and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol

from rich.console import RenderableType
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from cacheaudit.report import format as fmt

_NEEDS = {
    "usage": "usage",
    "requests": "requests",
    "start_times": "start times",
    "provider_reasons": "the provider's reasons",
    "boundaries": "recorded events",
}
_LEVELS = {"refused": "refused", "never_hits": "never hits", "wasteful": "wasteful"}
HEADS = ("Call", "Lane", "Start", "Read", "Written", "Uncached", "Found")


class RuleLike(Protocol):
    """One rule."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def since(self) -> str: ...  # noqa: D102
    @property
    def family_title(self) -> str: ...  # noqa: D102
    @property
    def needs(self) -> Sequence[str]: ...  # noqa: D102


class CheckLike(Protocol):
    """One check of ``lint``."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def level(self) -> str: ...  # noqa: D102
    @property
    def title(self) -> str: ...  # noqa: D102


class CallLike(Protocol):
    """A call of an example."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def lane(self) -> str: ...  # noqa: D102
    @property
    def start(self) -> float | None: ...  # noqa: D102
    @property
    def cache_read(self) -> int | None: ...  # noqa: D102
    @property
    def cache_write(self) -> int | None: ...  # noqa: D102
    @property
    def uncached_input(self) -> int | None: ...  # noqa: D102
    @property
    def says(self) -> Sequence[str]: ...  # noqa: D102


class ExampleLike(Protocol):
    """An example."""

    @property
    def text(self) -> str: ...  # noqa: D102
    @property
    def calls(self) -> Sequence[CallLike]: ...  # noqa: D102
    @property
    def tokens_lost(self) -> dict[str, int]: ...  # noqa: D102
    @property
    def input_equivalents(self) -> str: ...  # noqa: D102


def rules_text(rules: Sequence[RuleLike], lint: Sequence[CheckLike]) -> Iterator[RenderableType]:
    """Lay the catalogue out, family by family."""
    for number, (family, group) in enumerate(groupby(rules, key=lambda rule: rule.family_title)):
        if number:
            yield Text()
        yield Text(family[:1].upper() + family[1:], style="bold")
        table = _table(("id", "name", "says", "needs", "since"))
        for rule in group:
            title = rule.title if rule.kind == "loss" else f"{rule.title} (a note)"
            table.add_row(rule.id, rule.name, title, needs_words(rule.needs), rule.since)
        yield table
    if lint:
        yield Text("\nChecks of `cacheaudit lint`", style="bold")
        table = _table(("name", "level", "says"))
        for check in lint:
            table.add_row(check.name, _LEVELS.get(check.level, check.level), check.title)
        yield table


def rules_md(rules: Sequence[RuleLike], lint: Sequence[CheckLike]) -> str:
    """Write the catalogue as Markdown tables."""
    lines = ["| id | name | family | what it says | needs | since |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {r.id} | {r.name} | {r.family_title} | {r.title} | {needs_words(r.needs)} | {r.since} |"
        for r in rules
    ]
    if lint:
        lines += ["", "| check of lint | level | what it says |", "|---|---|---|"]
        lines += [f"| {c.name} | {_LEVELS.get(c.level, c.level)} | {c.title} |" for c in lint]
    return "\n".join(lines) + "\n"


def rule_text(
    markdown: str, rule: RuleLike, bad: ExampleLike, good: ExampleLike
) -> Iterator[RenderableType]:
    """Lay one rule out: its page, then both examples as tables of calls."""
    yield Markdown(markdown)
    yield Text(f"\nNeeds {needs_words(rule.needs)}. Since {rule.since}.", style="dim")
    for head, example in (("Bad", bad), ("Good", good)):
        yield Text(f"\n{head}: {fmt.printable(example.text)}", style="bold")
        table = _table(HEADS, right=(2, 3, 4, 5))
        for cells in example_cells(example):
            table.add_row(*cells)
        yield table
        yield Text(lost_words(example), style="dim")


def rule_md(markdown: str, rule: RuleLike, bad: ExampleLike, good: ExampleLike) -> str:
    """Write one rule as Markdown, both examples as tables."""
    lines = [markdown.rstrip(), "", f"Needs {needs_words(rule.needs)}. Since {rule.since}."]
    for head, example in (("Bad", bad), ("Good", good)):
        lines += ["", f"## {head} example", "", example.text, ""]
        lines += ["| " + " | ".join(HEADS) + " |", "|---|---|---:|---:|---:|---:|---|"]
        lines += ["| " + " | ".join(cells) + " |" for cells in example_cells(example)]
        lines += ["", lost_words(example)]
    return "\n".join(lines) + "\n"


def needs_words(needs: Sequence[str]) -> str:
    """Name what a rule needs."""
    return ", ".join(_NEEDS.get(item, item) for item in needs)


def lost_words(example: ExampleLike) -> str:
    """Say what was lost in an example, and to what."""
    if not example.tokens_lost:
        return "Nothing is lost."
    parts = [f"{count:,} tokens to {name}" for name, count in example.tokens_lost.items()]
    weighted = fmt.equivalents(example.input_equivalents)
    return f"Lost: {', '.join(parts)}; {weighted} ordinary input tokens."


def example_cells(example: ExampleLike) -> Iterator[tuple[str, ...]]:
    """Write the calls of an example as cells."""
    for call in example.calls:
        yield (
            call.id,
            call.lane,
            fmt.DASH if call.start is None else _clock(call.start),
            fmt.count(call.cache_read),
            fmt.count(call.cache_write),
            fmt.count(call.uncached_input),
            ", ".join(call.says),
        )


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3_600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes:02}:{left:02}"


def _table(heads: Sequence[str], right: Sequence[int] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, head in enumerate(heads):
        is_wide = head == "says" or head == "Found"
        table.add_column(
            head,
            justify="right" if index in right else "left",
            no_wrap=not is_wide,
            overflow="fold",
        )
    return table
