"""What ``lint`` found, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from cacheaudit.report import format as fmt

_LEVELS = {
    "refused": ("would be refused", "bold red"),
    "never_hits": ("would never hit", "bold magenta"),
    "wasteful": ("wasteful", "bold yellow"),
}


class ProblemLike(Protocol):
    """One problem."""

    @property
    def rule(self) -> str: ...  # noqa: D102
    @property
    def level(self) -> str: ...  # noqa: D102
    @property
    def path(self) -> str: ...  # noqa: D102
    @property
    def message(self) -> str: ...  # noqa: D102
    @property
    def file(self) -> str | None: ...  # noqa: D102


def lint_text(problems: Sequence[ProblemLike], requests: int) -> Iterator[RenderableType]:
    """Lay problems out, file by file."""
    checked = fmt.plural(requests, "request")
    if not problems:
        yield Text(f"No problem found in {checked}.", style="bold")
        return
    counts = {level: sum(p.level == level for p in problems) for level in _LEVELS}
    said = ", ".join(f"{n} {_LEVELS[level][0]}" for level, n in counts.items() if n)
    found = fmt.plural(len(problems), "problem")
    yield Text(f"{found} in {checked}: {said}.", style="bold")
    file: str | None = None
    for item in problems:
        if item.file != file:
            file = item.file
            yield Text(f"\n{fmt.printable(file or '')}", style="underline")
        yield Text()
        yield _entry(item)


def _entry(item: ProblemLike) -> Group:
    word, style = _LEVELS.get(item.level, (item.level, ""))
    head = Text.assemble(
        (word, style), "  ", (fmt.printable(item.path), "cyan"), (f"  {item.rule}", "dim")
    )
    return Group(head, Padding(Text(fmt.printable(item.message)), (0, 0, 0, 2)))
