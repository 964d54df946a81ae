"""Text for a terminal: what was paid, what misses cost, why, and what to do."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cacheaudit.report import format as fmt
from cacheaudit.report.figures import dearest, sparklines
from cacheaudit.report.groups import GROUP_HEADS, group_cells
from cacheaudit.report.renderer import View
from cacheaudit.report.result import (
    AuditResult,
    FindingRow,
    Quality,
    Scope,
    Tool,
    Totals,
    UsageResult,
)
from cacheaudit.report.result import Group as TotalsGroup
from cacheaudit.report.summary import (
    NOT_LOOKED_FOR,
    bound,
    by_money,
    cost_text,
    hit_ratio,
    is_cut,
    paid,
    part_share,
    source_words,
    tokens,
    verdict,
    write_tiers,
    writes,
)
from cacheaudit.report.terminal import (
    accuracy_line,
    balance_rows,
    balance_table,
    losses_table,
    scenarios_table,
    tools_table,
)
from cacheaudit.report.verdict import Balance, balance
from cacheaudit.report.words import confidence, quality_words

_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
SHOWN_FINDINGS = 5
SHOWN_LINES = 2
SHOWN_SESSIONS = 5
SHOWN_QUALITY = 8
READ, WRITE, UNCACHED = "cyan", "yellow", "red"


class TextRenderer:
    """Writes what fits the terminal; ``--verbose`` shows the rest."""

    name = "text"
    suffix = ".txt"

    def audit(self, result: AuditResult, out: BinaryIO, view: View) -> None:
        """Write the result of an audit."""
        parts: list[RenderableType] = [_scope(result.scope, result.tool), Text()]
        parts.append(_verdict(result))
        if result.scope.calls:
            balanced = balance(result)
            parts += [Text(), _totals(result.totals, view.width, balanced)]
            parts += _findings(result, view)
            parts += _money(result, balanced, view)
        if len(result.by_model) > 1 or result.totals.cost.unpriced_calls:
            parts += [*_heading("By model"), group_table("Model", result.by_model, None, view)]
        if len(result.by_purpose) > 1:
            parts += [
                *_heading("By purpose"),
                group_table("Purpose", result.by_purpose, None, view),
            ]
        parts += _sessions(result, view)
        parts += _quality(result.data_quality, view)
        emit(parts, out, view)

    def usage(self, result: UsageResult, out: BinaryIO, view: View) -> None:
        """Write totals."""
        parts: list[RenderableType] = [_scope(result.scope, result.tool), Text()]
        if result.scope.calls:
            parts.append(group_table(result.by.title(), result.groups, result.totals, view))
            if bound(result.totals, "output"):
                parts.append(Text("Output is a lower bound: the record lacks some.", style="dim"))
            parts += _cost_remarks(result.totals)
        else:
            parts.append(Text("No calls were found in what was read."))
        # There is no --verbose here that could show what is left out.
        parts += _quality(result.data_quality, view, most=len(result.data_quality))
        emit(parts, out, view)


def emit(parts: Sequence[RenderableType], out: BinaryIO, view: View) -> None:
    """Lay the parts out and write them; lines end without blanks."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=view.width,
        force_terminal=view.color,
        color_system="standard" if view.color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(Group(*parts))
    lines = (line.rstrip() for line in stream.getvalue().splitlines())
    out.write("\n".join([*lines, ""]).encode(view.encoding, errors="replace"))


def group_table(
    head: str, groups: Sequence[TotalsGroup], totals: Totals | None, view: View
) -> Table:
    """Lay out totals by key, with numbers shortened where full ones do not fit."""
    rows = group_cells(groups, totals, view.width - 14)
    table = _columns(head, GROUP_HEADS, rows, view.width)
    for group, cells in zip(groups, rows, strict=False):
        table.add_row(fmt.printable(group.key), *cells)
    if totals is not None and len(groups) != 1:
        table.add_row("Total", *rows[-1], style="bold")
    return table


def _columns(
    head: str, heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, last: int = 0
) -> Table:
    """Make a table whose figures are never cut; the first column gives way instead.

    ``last`` is the width of a further column on the right.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    room = width - sum(widths) - 2 * len(widths) - 2 - (last + 2 if last else 0)
    table.add_column(head, overflow="ellipsis", no_wrap=True, max_width=max(8, room))
    for title, wide in zip(heads, widths, strict=True):
        table.add_column(title, justify="right", no_wrap=True, min_width=wide)
    return table


def _scope(scope: Scope, tool: Tool) -> Text:
    pieces = [
        fmt.plural(scope.calls, "call"),
        fmt.plural(scope.sessions, "session"),
        fmt.period(scope.first, scope.last) if scope.calls else "",
        f"from {source_words(scope)}" if scope.sources else "",
        f"prices of {tool.prices_as_of}" if tool.prices_as_of else "",
    ]
    return Text(" · ".join(piece for piece in pieces if piece), style="dim")


def _verdict(result: AuditResult) -> Text:
    first, *rest = verdict(result)
    text = Text(first, style="bold")
    for sentence in rest:
        text.append(f"\n{sentence}", style="not bold")
    return text


def _money(result: AuditResult, balanced: Balance | None, view: View) -> Iterator[RenderableType]:
    """Say what the fixes would save, and with ``--verbose`` what else was worked out."""
    if balanced is not None and balanced.leaps:
        yield from _heading("From paid to best case", "each fix on top of those before it")
        yield from balance_table(balanced, view.verbose, view.width)
    if not view.verbose:
        return
    yield from _heading("What was lost, by cause", "tokens, by what a cause is known from")
    yield from losses_table(result, view.width)
    settings = list(scenarios_table(result, balanced, view.width))
    if settings:
        yield from [*_heading("What if"), *settings]
    accuracy = list(accuracy_line(result))
    if accuracy:
        yield from [*_heading("Simulator"), *accuracy]
    if result.tools:
        yield from _heading("Tools", "by the size of their definitions in all calls")
        yield from tools_table(result, view.width)


def _totals(totals: Totals, width: int, balanced: Balance | None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("Input", tokens(totals, "total_input", fmt.UNKNOWN), "", "tokens")
    bar = 20 if width < 100 else 30
    for label, part, value, style, remark in (
        ("  read from the cache", "cache_read", totals.cache_read, READ, ""),
        ("  written to it", "cache_write", writes(totals), WRITE, write_tiers(totals)),
        ("  uncached", "uncached_input", totals.uncached_input, UNCACHED, ""),
    ):
        drawn = Text(_bar(value, totals.total_input, bar), style=style)
        if remark:
            drawn.append(f"  {remark}" if drawn.plain else remark, style="dim")
        if missing := totals.unknown_calls.get(part, 0) if value is not None else 0:
            told = f"not known of {fmt.plural(missing, 'call')}"
            drawn.append(f"{'  ' if drawn.plain else ''}{told}", style="dim")
        table.add_row(label, tokens(totals, part, fmt.UNKNOWN), part_share(totals, part), drawn)
    unit = "tokens, a lower bound" if bound(totals, "output") else "tokens"
    table.add_row("Output", tokens(totals, "output", fmt.UNKNOWN), "", unit)
    equivalents = fmt.equivalents(totals.input_equivalents, fmt.UNKNOWN)
    weighted = "in ordinary input tokens"
    if equivalents != fmt.UNKNOWN and totals.unweighted_calls:
        equivalents = f"≥ {equivalents}"
        weighted += f"; {fmt.plural(totals.unweighted_calls, 'call')} without a known weight"
    table.add_row("Input, weighted", equivalents, "", weighted)
    money, origin = paid(totals)
    amount = fmt.amount(money, totals.cost.currency)
    table.add_row("Cost", amount, "", _cost_remark(totals, origin))
    if balanced is not None:
        for label, sum_, remark in balance_rows(balanced):
            table.add_row(label, sum_, "", remark)
    return table


def _bar(value: int | None, whole: int | None, width: int) -> str:
    if not value or not whole:
        return ""
    eighths = max(1, round(value * width * 8 / whole))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]


def _cost_remark(totals: Totals, origin: str) -> str:
    cost = totals.cost
    remarks = []
    if origin == "computed":
        remarks.append("computed from prices")
        if cost.reported is not None:
            remarks.append(f"the record states {fmt.amount(cost.reported, cost.currency)}")
    elif origin == "reported":
        remarks.append("as the record says")
    if cost.reason:
        remarks.append(fmt.printable(cost.reason))
    if cost.unpriced_calls:
        remarks.append(f"{fmt.plural(cost.unpriced_calls, 'call')} without a price")
    return "; ".join(remarks)


def _cost_remarks(totals: Totals) -> Iterator[RenderableType]:
    cost = totals.cost
    if cost.unpriced_calls:
        reason = f": {fmt.printable(cost.reason)}" if cost.reason else ""
        text = f"{fmt.plural(cost.unpriced_calls, 'call')} without a price{reason}"
        yield Text(f"{text} (--prices FILE adds one).", style="dim")
    if cost.reported is not None and cost.computed is not None:
        stated = fmt.amount(cost.reported, cost.currency)
        yield Text(f"Costs stated in the records themselves: {stated}.", style="dim")


def _heading(title: str, remark: str = "") -> list[RenderableType]:
    text = Text(title, style="bold")
    if remark:
        text.append(f"  {remark}", style="dim not bold")
    return [Text(), text]


def _findings(result: AuditResult, view: View) -> list[RenderableType]:
    findings = by_money(result.findings)
    if not findings:
        words = "None." if result.diagnosed else f"{NOT_LOOKED_FOR.capitalize()}."
        return [*_heading("Findings"), Text(words)]
    shown = findings if view.verbose else findings[:SHOWN_FINDINGS]
    currency = result.totals.cost.currency
    parts = _heading("Findings", "dearest first")
    for number, finding in enumerate(shown, 1):
        parts += [Text() if number > 1 else Text("", end="")]
        session = finding.session if result.scope.sessions > 1 else None
        parts.append(_finding(number, finding, currency, session, view))
    if rest := len(findings) - len(shown):
        parts += [Text(), Text(f"… {fmt.plural(rest, 'more finding')}: --verbose", style="dim")]
    return parts


def _finding(
    number: int, finding: FindingRow, currency: str, session: str | None, view: View
) -> RenderableType:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=2, justify="right")
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    lost = finding.lost
    money = ""
    if lost is not None and finding.kind == "loss":
        weighted = f"{fmt.equivalents(lost.input_equivalents)} input tokens"
        money = fmt.amount(lost.cost, currency, unknown=weighted)
    table.add_row(
        Text(str(number), style="bold"),
        Text(fmt.printable(finding.title), style="bold"),
        Text(money, style="bold red"),
    )
    facts = [
        f"{finding.rule} {finding.name}",
        confidence(finding.verdict, finding.evidence),
    ]
    if finding.tokens_lost:
        facts.append(fmt.plural(finding.tokens_lost, "token"))
    if finding.calls:
        facts.append(_calls(finding, view))
    if session is not None:
        facts.append(f"session {fmt.printable(session) if view.verbose else fmt.short_id(session)}")
    table.add_row("", Text(" · ".join(facts), style="dim"), "")
    return Group(table, *_lines(finding, currency, view))


def _calls(finding: FindingRow, view: View) -> str:
    ids = [fmt.printable(c) if view.verbose else fmt.short_id(c) for c in finding.calls]
    limit = len(ids) if view.verbose else 3
    listed = ", ".join(ids[:limit])
    rest = "others" if is_cut(finding) else f"{len(ids) - limit} more"
    more = f" and {rest}" if len(ids) > limit or is_cut(finding) else ""
    return f"{'call' if len(ids) == 1 else 'calls'} {listed}{more}"


def _lines(finding: FindingRow, currency: str, view: View) -> Iterator[RenderableType]:
    rivals = [f"{rival.rule}: {rival.why}" for rival in finding.rivals]
    for label, style, lines in (
        ("established", "green", finding.established),
        ("to check", "yellow", finding.to_check),
        ("rivals", "magenta", rivals),
    ):
        limit = len(lines) if view.verbose else SHOWN_LINES
        for position, line in enumerate(lines[:limit]):
            yield _labelled(label if position == 0 else "", style, fmt.printable(line))
        if len(lines) > limit:
            yield _labelled("", style, f"… {len(lines) - limit} more")
    place = finding.first_change
    if place is not None:
        at = "" if place.byte_offset is None else f", byte {place.byte_offset:,}"
        where = f"{fmt.printable(place.path)}{at}"
        yield _labelled("changed at", "cyan", where)
    fix = finding.fix
    if finding.no_fix is not None:
        yield _labelled("no fix", "blue", fmt.printable(finding.no_fix))
    if fix is None:
        return
    saves = ""
    if fix.saves_alone is not None and fix.saves_alone.cost is not None:
        saves = f" (alone saves {fmt.amount(fix.saves_alone.cost, currency)})"
    yield _labelled("fix", "blue", f"{fmt.printable(fix.title)}{saves}")
    if fix.patch and view.verbose:
        yield Padding(Text("\n".join(map(fmt.printable, fix.patch.splitlines()))), (0, 0, 0, 15))


def _labelled(label: str, style: str, text: str) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=2)
    table.add_column(width=11)
    table.add_column()
    table.add_row("", Text(label, style=style), Text(text))
    return table


def _sessions(result: AuditResult, view: View) -> list[RenderableType]:
    number = len(result.by_session) if view.verbose else SHOWN_SESSIONS
    chosen = dearest(result.by_session, number)
    if not chosen:
        return []
    wide = 24 if view.width < 100 else 48
    drawn = sparklines(result.calls, [group.key for group in chosen], wide)
    places = fmt.places_for(paid(group.totals)[0] for group in chosen)
    rows = [
        (
            f"{group.totals.calls:,}",
            hit_ratio(group.totals, fmt.DASH),
            cost_text(group.totals, places),
        )
        for group in chosen
    ]
    table = _columns("Session", ("Calls", "Hit ratio", "Cost"), rows, view.width, wide)
    table.add_column("Hit ratio, call by call", no_wrap=True, min_width=wide)
    for group, row in zip(chosen, rows, strict=True):
        line = Text(drawn[group.key].draw(), style=READ)
        table.add_row(fmt.printable(group.key), *row, line)
    parts = [*_heading("Sessions", "dearest first"), table]
    if rest := len(result.by_session) - len(chosen):
        parts.append(Text(f"… {fmt.plural(rest, 'more session')}: --verbose", style="dim"))
    return parts


def _quality(
    rows: Sequence[Quality], view: View, most: int = SHOWN_QUALITY
) -> list[RenderableType]:
    if not rows:
        return []
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    shown = rows if view.verbose else rows[:most]
    for row in shown:
        text = Text(quality_words(row.kind, row.count))
        examples = row.examples if view.verbose else row.examples[:1]
        for example in examples:
            text.append(f"\n{fmt.printable(example)}", style="dim")
        table.add_row(f"{row.count:,}", text)
    parts = [*_heading("Data quality"), table]
    if rest := len(rows) - len(shown):
        parts.append(Text(f"… {fmt.plural(rest, 'more kind')}: --verbose", style="dim"))
    return parts


RENDERER = TextRenderer()
