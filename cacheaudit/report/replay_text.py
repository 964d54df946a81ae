"""``cacheaudit replay`` as text: a line a call, three figures side by side, and the sums."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cacheaudit.report import format as fmt
from cacheaudit.report.replay import ReplayedCall, ReplayResult
from cacheaudit.report.simulation import Parts


def replay_text(result: ReplayResult) -> Iterator[RenderableType]:
    """Lay out a replay: how well all three agree, the calls, the sums."""
    yield Text(_headline(result), style="bold")
    yield Text()
    yield _calls(result)
    yield Text()
    if reasons := list(_reasons(result)):
        yield from reasons
        yield Text()
    yield _totals(result)
    yield Text()
    for line in _remarks(result):
        yield Text(fmt.printable(line), style="dim")


def _headline(result: ReplayResult) -> str:
    totals = result.totals
    if not totals.replayed_calls:
        return "Nothing was replayed."
    said = f"{fmt.plural(totals.replayed_calls, 'call')} replayed"
    if totals.compared_calls:
        said += f"; {totals.equal_calls:,} of {totals.compared_calls:,} as predicted"
    if totals.reported_calls and not result.edits:
        said += f", {totals.reproduced_calls:,} of {totals.reported_calls:,} as reported"
    if totals.failed_calls:
        said += f"; {totals.failed_calls:,} failed"
    return f"{said}."


def _calls(result: ReplayResult) -> Table:
    is_long = len({call.lane for call in result.calls}) > 1
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for head in ("call", "lane") if is_long else ("call",):
        table.add_column(head, overflow="ellipsis", no_wrap=True)
    for head in ("read", "reported", "engine", "written", "reported", "engine", "first"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", overflow="fold", style="dim")
    for call in result.calls:
        sides = (call.predicted, call.reported, call.replayed)
        names = (fmt.short_id(call.id), call.lane) if is_long else (fmt.short_id(call.id),)
        table.add_row(
            *map(fmt.printable, names),
            *(fmt.count(side.cache_read if side else None) for side in sides),
            *(fmt.count(side.cache_write if side else None) for side in sides),
            _seconds(call.first_token_s),
            ", ".join(reason.kind.replace("_", " ") for reason in call.why),
            style="yellow" if _differs(call) else "",
        )
    return table


def _reasons(result: ReplayResult) -> Iterator[RenderableType]:
    """Say once in a sentence what stands in the rows in a word."""
    found: dict[str, list[str]] = {}
    for call in result.calls:
        for reason in call.why:
            found.setdefault(reason.kind, []).append(reason.text)
    for kind, texts in found.items():
        others = len(set(texts)) - 1
        more = f" (and {fmt.plural(others, 'other')} like it)" if others else ""
        word = kind.replace("_", " ")
        said = f"{word}, {fmt.plural(len(texts), 'call')}: {texts[0]}{more}."
        yield Text(fmt.printable(said))


def _differs(call: ReplayedCall) -> bool:
    known = [s for s in (call.predicted, call.reported, call.replayed) if s is not None]
    figures = {(side.cache_read, side.cache_write) for side in known if side.cache_read is not None}
    return len(figures) > 1


def _totals(result: ReplayResult) -> Table:
    totals = result.totals
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("")
    for head in ("read", "written", "uncached"):
        table.add_column(head, justify="right", no_wrap=True)
    rows: list[tuple[str, Parts]] = [
        ("predicted", totals.predicted),
        ("reported", totals.reported),
        ("replayed", totals.replayed),
    ]
    if result.scale != 1 or result.backend.sizes != "exact":
        rows.append(("as sent", totals.sent))
    for name, parts in rows:
        missing = totals.unknown_calls.get(name, {})
        figures = (
            fmt.count_of(getattr(parts, part), missing.get(part, 0))
            for part in ("cache_read", "cache_write", "uncached_input")
        )
        table.add_row(name, *figures)
    return table


def _remarks(result: ReplayResult) -> Iterator[str]:
    backend = result.backend
    where = "the local engine" if backend.url == "local" else backend.url
    model = f" ({backend.model})" if backend.model else ""
    rules = ", ".join(f"{name} for {fmt.plural(n, 'call')}" for name, n in backend.rules.items())
    yield f"Sent to {where}{model}; cache rules: {rules or 'not known'}."
    clock = "as recorded" if result.clock == "recorded" else "stood still; no lifetime ended"
    waited = result.totals.first_token_s
    first = "" if waited is None else f" First tokens took {_seconds(waited)} in all."
    yield f"Time {clock}.{first}"
    if result.scale != 1:
        yield f"One token sent stands for {result.scale:,} of the record."
    if backend.sizes == "approximate":
        yield "The server counts tokens otherwise than by bytes, so sizes there are approximate."
    if backend.content == "filler":
        yield "Content was replaced by filler of its size; no recorded text was sent."
    if result.edits:
        yield f"Changed before the replay: {', '.join(result.edits)}."
    if result.switches:
        told = ", ".join(f"{name}={value}" for name, value in sorted(result.switches.items()))
        yield f"Disputed rules set for the prediction: {told}."
    if any(call.basis == "usage" for call in result.calls):
        yield "Requests drawn from usage alone reproduce it; they say nothing of its causes."
    yield f"Provider rules as of {result.rules_version}."


def _seconds(value: float | None) -> str:
    if value is None:
        return fmt.DASH
    return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:,.1f} s"
