"""A comparison of two requests as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cacheaudit.report import format as fmt
from cacheaudit.report.result import DiffChange, DiffResult, DiffSide

_VERDICTS = {
    "equal": "The requests are equal: a cache sees no difference.",
    "extends": "The second request only appends to the first: nothing in the cache is lost.",
    "truncates": "The second request is the beginning of the first: all of it can be read.",
}
_KINDS = {
    "added": "inserted",
    "removed": "removed",
    "reordered": "in another order",
    "edited": "edited",
    "key_order_only": "same JSON, keys in another order",
    "representation_only": "same value, written another way",
    "moved": "moved",
    "parameter": "a setting",
}


def diff_text(result: DiffResult) -> Iterator[RenderableType]:
    """Lay out a comparison, verdict first."""
    change = result.first_change
    yield Text(_VERDICTS.get(result.relation) or _sentence(change), style="bold")
    yield Text()
    yield _sides(result)
    if change is None or result.relation == "truncates":
        return
    yield Text()
    yield from _where(change)
    yield Text()
    yield _price(result, change)


def _sentence(change: DiffChange | None) -> str:
    if change is None:
        return "The requests differ only where no cache looks."
    kind = _KINDS.get(change.kind, change.kind)
    return f"First change: {fmt.printable(change.path)} ({kind})."


def _sides(result: DiffResult) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("first", _side(result.a))
    table.add_row("second", _side(result.b))
    shared = result.common
    table.add_row(
        "equal",
        f"{fmt.plural(shared.tools, 'tool')}, {fmt.plural(shared.system, 'system block')},"
        f" {fmt.plural(shared.messages, 'message')} from the front of each level;"
        f" {fmt.plural(shared.content_blocks, 'content block')} in one piece",
    )
    return table


def _side(side: DiffSide) -> str:
    model = fmt.printable(side.model or "model not known")
    about = "" if side.tokens_origin == "recorded" else "about "
    tokens = "" if side.tokens is None else f", {about}{fmt.plural(side.tokens, 'token')}"
    blocks = fmt.plural(side.content_blocks, "content block")
    return f"{fmt.printable(side.where)}: {model}, {blocks}{tokens}"


def _where(change: DiffChange) -> Iterator[RenderableType]:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("level", change.level)
    is_inside = change.kind not in ("parameter", "added", "removed")
    if is_inside and change.byte_offset is not None:
        table.add_row("byte", f"{change.byte_offset:,} of the changed field")
    for label, style, what, text in (
        ("before", "red", change.before, change.before_text),
        ("after", "green", change.after, change.after_text),
    ):
        if text is None and what is None:
            table.add_row(label, Text("nothing", style="dim"))
            continue
        line = Text(fmt.printable(what) if what and change.kind != "parameter" else "", style="dim")
        if text is not None:
            line.append("\n" if line.plain else "")
            line.append(fmt.printable(text), style=f"not dim {style}")
        table.add_row(label, line)
    yield table
    if change.masked and (change.before_text or change.after_text):
        yield Text("Letters and digits are masked; --show-text shows them.", style="dim")


def _price(result: DiffResult, change: DiffChange) -> RenderableType:
    about = "" if change.tokens_origin == "recorded" else "About "
    if change.tokens_after is None:
        start = "How many tokens stand behind the change is not known."
    else:
        tokens = fmt.plural(change.tokens_after, "token")
        stand = "stands" if change.tokens_after == 1 else "stand"
        start = f"{about}{tokens} {stand} behind the change."
    if result.cost is None:
        return Text(f"{start} The cost is not known: {result.cost_reason}.")
    cost = result.cost
    return Text(
        f"{start} Writing them for {cost.write_ttl} instead of reading them costs up to"
        f" {fmt.amount(cost.amount, cost.currency)}"
        f" ({fmt.equivalents(cost.input_equivalents)} ordinary input tokens)."
    )
