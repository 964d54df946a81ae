"""Markdown, for an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cacheaudit.report import format as fmt
from cacheaudit.report.groups import GROUP_HEADS, group_cells
from cacheaudit.report.losses import HEADS, loss_table
from cacheaudit.report.result import (
    AuditResult,
    FindingRow,
    FixRow,
    Group,
    PriceUsed,
    Quality,
    Scope,
    Tool,
    Totals,
    UsageResult,
)
from cacheaudit.report.settings import (
    accuracy_words,
    scenario_lines,
    score_words,
    steps_text,
)
from cacheaudit.report.summary import (
    NOT_LOOKED_FOR,
    bound,
    by_money,
    is_cut,
    paid,
    part_share,
    source_words,
    tokens,
    verdict,
    write_tiers,
)
from cacheaudit.report.verdict import Balance, balance
from cacheaudit.report.words import confidence, quality_words

SHOWN_BRIEF = 10
_ACTIVE = re.compile(r"([\\`*_\[\]<>|#~&!])")


def audit_markdown(result: AuditResult, brief: bool = False) -> str:
    """Write the result of an audit; single calls are left to JSON and CSV.

    Args:
        result: The result.
        brief: Only the findings that cost most.
    """
    balanced = balance(result)
    lines = [
        "# Cache audit",
        "",
        _scope(result.scope, result.tool),
        "",
        *_verdict(result),
        *_balance(balanced, result),
        *_totals(result.totals),
        *_findings(result, SHOWN_BRIEF if brief else None),
        *_losses(result),
        *_scenarios(result, balanced),
        *_simulation(result),
        *_group_table("By model", "Model", result.by_model, None),
        *_group_table("By purpose", "Purpose", result.by_purpose, None),
        *([] if brief else _tools(result)),
        *_quality(result.data_quality),
        *_prices(result.prices),
    ]
    return _text(lines)


def usage_markdown(result: UsageResult) -> str:
    """Write totals."""
    lines = [
        _scope(result.scope, result.tool),
        *_group_table("", result.by.title(), result.groups, result.totals),
        *_quality(result.data_quality),
    ]
    return _text(lines)


def _text(lines: Sequence[str]) -> str:
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    return joined.rstrip() + "\n"


def escape(text: str) -> str:
    """Make text harmless inside a Markdown paragraph or table cell."""
    return _ACTIVE.sub(r"\\\1", fmt.printable(text))


def code(text: str) -> str:
    """Write text as code, whatever backticks it holds."""
    plain = fmt.printable(text).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", plain)), default=0)
    fence = "`" * (longest + 1)
    blank = " " if longest else ""
    return f"{fence}{blank}{plain}{blank}{fence}"


def _scope(scope: Scope, tool: Tool) -> str:
    pieces = [
        fmt.plural(scope.calls, "call"),
        fmt.plural(scope.sessions, "session"),
        fmt.period(scope.first, scope.last) if scope.calls else "",
        f"from {escape(source_words(scope))}" if scope.sources else "",
        f"prices of {tool.prices_as_of}" if tool.prices_as_of else "",
        f"cacheaudit {tool.version}",
    ]
    return " · ".join(piece for piece in pieces if piece)


def _verdict(result: AuditResult) -> list[str]:
    first, *rest = verdict(result)
    return [f"**{escape(first)}** " + " ".join(map(escape, rest)), ""]


def _totals(totals: Totals) -> list[str]:
    value, origin = paid(totals)
    cost = f"{fmt.amount(value, totals.cost.currency)}" + ("" if value is None else f" ({origin})")
    tiers = write_tiers(totals)
    is_part = totals.input_equivalents is not None and totals.unweighted_calls
    rows = [
        ("Input", tokens(totals, "total_input", fmt.UNKNOWN), ""),
        _part("read from the cache", "cache_read", totals),
        _part("written to it" + (f" ({tiers})" if tiers else ""), "cache_write", totals),
        _part("uncached", "uncached_input", totals),
        (
            "Output" + (" (a lower bound)" if bound(totals, "output") else ""),
            tokens(totals, "output", fmt.UNKNOWN),
            "",
        ),
        (
            "Input in ordinary input tokens" + (" (a lower bound)" if is_part else ""),
            fmt.equivalents(totals.input_equivalents, fmt.UNKNOWN),
            "",
        ),
        ("Cost", cost, ""),
    ]
    if totals.cost.unpriced_calls:
        rows.append(("Calls without a price", fmt.count(totals.cost.unpriced_calls), ""))
    return [*_table(("", "Tokens", "Share"), rows, right=(1, 2)), ""]


def _part(label: str, name: str, totals: Totals) -> tuple[str, str, str]:
    return f"· {label}", tokens(totals, name, fmt.UNKNOWN), part_share(totals, name)


def _balance(balanced: Balance | None, result: AuditResult) -> Iterator[str]:
    """Write the steps from paid to best case; they add up exactly."""
    if balanced is None:
        if result.what_if.reason:
            yield f"What fixes would save was not simulated: {escape(result.what_if.reason)}."
            yield ""
        return
    shown = steps_text(balanced)
    yield "## From paid to best case"
    yield ""
    rows = [
        tuple(escape(text) for text in (line.title, line.change, line.left, line.alone))
        for line in shown
    ]
    yield from _table(("Step", "Saves", "Left", "Alone"), rows, right=(1, 2, 3))
    yield ""
    if balanced.score is not None:
        yield f"Score {balanced.score} of 100: {escape(score_words(balanced))}"
        yield ""


def _findings(result: AuditResult, limit: int | None) -> Iterator[str]:
    yield "## Findings"
    yield ""
    if not result.findings:
        yield "None." if result.diagnosed else f"{NOT_LOOKED_FOR.capitalize()}."
        yield ""
    currency = result.totals.cost.currency
    ordered = by_money(result.findings)
    for number, finding in enumerate(ordered[:limit], 1):
        yield from _finding(number, finding, currency)
    if limit is not None and len(ordered) > limit:
        yield f"{fmt.plural(len(ordered) - limit, 'more finding')}."
        yield ""


def _losses(result: AuditResult) -> Iterator[str]:
    table = loss_table(result.findings)
    if not table.rows and not table.remainder.lost.tokens:
        return
    yield "## What was lost, by cause"
    yield ""
    currency = result.totals.cost.currency
    places = fmt.places_for([table.total.lost.cost_text])
    rows = [
        (
            f"{code(row.rule)} {escape(row.name)}" if row.rule else escape(row.name),
            *(fmt.count(row.tokens.get(column, 0)) for column in table.columns),
            escape(fmt.money(row.lost.cost_text, currency, places, fmt.DASH)),
            fmt.ratio(str(round(row.share, 6))),
        )
        for row in (*table.rows, table.remainder, table.total)
    ]
    heads = ("Cause", *(f"{HEADS[name]}, tokens" for name in table.columns), "Money", "Share")
    yield from _table(heads, rows, right=range(1, len(heads)))
    yield ""


def _scenarios(result: AuditResult, balanced: Balance | None) -> Iterator[str]:
    shown = scenario_lines(result, balanced)
    if not shown:
        return
    yield "## What if"
    yield ""
    rows = [
        (
            escape(f"{line.title} ({line.note})" if line.note else line.title),
            line.hit_ratio,
            escape(line.total),
            escape(line.saves),
            code(line.command) if line.command else escape(line.refused),
        )
        for line in shown
    ]
    heads = ("Setting", "Hit ratio", "Sum", "Saves", "Again")
    yield from _table(heads, rows, right=(1, 2, 3))
    yield ""


def _simulation(result: AuditResult) -> Iterator[str]:
    words = accuracy_words(result)
    if words:
        yield "## Simulator"
        yield ""
        yield escape(words)
        yield ""


def _tools(result: AuditResult) -> Iterator[str]:
    if not result.tools:
        return
    yield "## Tools"
    yield ""
    rows = [
        (
            code(tool.name),
            fmt.count(tool.tokens),
            f"{tool.calls:,}",
            fmt.count(tool.used),
            f"{tool.versions:,}",
            f"{tool.churn:,}",
        )
        for tool in result.tools
    ]
    heads = ("Tool", "Tokens", "Declared", "Used", "Versions", "Changes")
    yield from _table(heads, rows, right=range(1, 6))
    yield ""


def _finding(number: int, finding: FindingRow, currency: str) -> Iterator[str]:
    money = ""
    if finding.kind == "loss" and finding.lost is not None:
        money = f" – {fmt.amount(finding.lost.cost, currency, unknown='no price')}"  # noqa: RUF001
    yield f"### {number}. {escape(finding.title)}{money}"
    yield ""
    calls = ", ".join(code(call) for call in finding.calls[:5])
    rest = "others" if is_cut(finding) else f"{len(finding.calls) - 5} more"
    more = f" and {rest}" if len(finding.calls) > 5 else ""
    lost = f" · {fmt.plural(finding.tokens_lost, 'token')}" if finding.tokens_lost else ""
    sure = confidence(finding.verdict, finding.evidence)
    named = f" · {calls}{more}" if calls else ""
    yield f"{code(finding.rule)} {escape(finding.name)} · {sure}{lost}{named}"
    yield ""
    yield from (f"- Established: {escape(line)}" for line in finding.established)
    yield from (f"- To check: {escape(line)}" for line in finding.to_check)
    yield from (
        f"- Also possible: {code(rival.rule)} {escape(rival.why)}" for rival in finding.rivals
    )
    if finding.first_change is not None:
        place = finding.first_change
        at = "" if place.byte_offset is None else f", byte {place.byte_offset:,}"
        yield f"- Changed at {code(place.path)}{at}"
    if finding.no_fix is not None:
        yield f"- No fix: {escape(finding.no_fix)}"
    if finding.fix is not None:
        saves = _saves(finding.fix, currency)
        yield f"- Fix: {escape(finding.fix.title)}{saves}"
        if finding.fix.patch:
            yield ""
            yield from (f"      {fmt.printable(line)}" for line in finding.fix.patch.splitlines())
    yield ""


def _saves(fix: FixRow, currency: str) -> str:
    if fix.saves_alone is None or fix.saves_alone.cost is None:
        return ""
    return f" (alone saves {fmt.amount(fix.saves_alone.cost, currency)})"


def _group_table(
    title: str, head: str, groups: Sequence[Group], totals: Totals | None
) -> Iterator[str]:
    if not groups:
        return
    yield from (["", f"## {title}"] if title else [])
    yield ""
    cells = group_cells(groups, totals)
    rows = [(escape(g.key), *row) for g, row in zip(groups, cells, strict=False)]
    if totals is not None and len(groups) != 1:
        rows.append(("**Total**", *cells[-1]))
    yield from _table((head, *GROUP_HEADS), rows, right=range(1, len(GROUP_HEADS) + 1))
    yield ""


def _quality(rows: Sequence[Quality]) -> Iterator[str]:
    if not rows:
        return
    yield "## Data quality"
    yield ""
    for row in rows:
        example = f" (first: {code(row.examples[0])})" if row.examples else ""
        yield f"- {row.count:,} {escape(quality_words(row.kind, row.count))}{example}"
    yield ""


def _prices(rows: Sequence[PriceUsed]) -> Iterator[str]:
    if not rows:
        return
    yield "## Prices used"
    yield ""
    cells = [
        (
            escape(row.model),
            escape(", ".join(f"{name} {rate}" for name, rate in row.rates.items())),
            row.currency,
            row.valid_from or fmt.UNKNOWN,
            escape(row.source),
            row.checked,
        )
        for row in rows
    ]
    heads = ("Model", "Rates per million tokens", "Currency", "Valid from", "Source", "Checked")
    yield from _table(heads, cells, right=())


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]
) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "|".join("---:" if i in right else "---" for i in range(len(heads))) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
