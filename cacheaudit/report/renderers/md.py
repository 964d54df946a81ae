"""Markdown, for an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from cacheaudit.report import format as fmt
from cacheaudit.report.groups import GROUP_HEADS, group_cells
from cacheaudit.report.renderer import View
from cacheaudit.report.result import (
    AuditResult,
    FindingRow,
    Group,
    PriceUsed,
    Quality,
    Scope,
    Tool,
    Totals,
    UsageResult,
)
from cacheaudit.report.summary import by_money, paid, source_words, verdict, write_tiers, writes
from cacheaudit.report.words import confidence, quality_words

_ACTIVE = re.compile(r"([\\`*_\[\]<>|#~&!])")


class MarkdownRenderer:
    """Writes tables and headings; text from the record is escaped."""

    name = "md"
    suffix = ".md"

    def audit(self, result: AuditResult, out: BinaryIO, view: View) -> None:
        """Write the result of an audit; single calls are left to JSON and CSV."""
        del view
        lines = [
            "# Cache audit",
            "",
            _scope(result.scope, result.tool),
            "",
            *_verdict(result),
            *_totals(result.totals),
            *_findings(result),
            *_group_table("By model", "Model", result.by_model, None),
            *_group_table("By purpose", "Purpose", result.by_purpose, None),
            *_quality(result.data_quality),
            *_prices(result.prices),
        ]
        out.write(_text(lines))

    def usage(self, result: UsageResult, out: BinaryIO, view: View) -> None:
        """Write totals."""
        del view
        lines = [
            _scope(result.scope, result.tool),
            *_group_table("", result.by.title(), result.groups, result.totals),
            *_quality(result.data_quality),
        ]
        out.write(_text(lines))


def _text(lines: Sequence[str]) -> bytes:
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    return (joined.rstrip() + "\n").encode()


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
    rows = [
        ("Input", fmt.count(totals.total_input, fmt.UNKNOWN), ""),
        _part("read from the cache", totals.cache_read, totals),
        _part("written to it" + (f" ({tiers})" if tiers else ""), writes(totals), totals),
        _part("uncached", totals.uncached_input, totals),
        (
            "Output" + (" (a lower bound)" if totals.output_is_lower_bound else ""),
            fmt.count(totals.output, fmt.UNKNOWN),
            "",
        ),
        (
            "Input in ordinary input tokens",
            fmt.equivalents(totals.input_equivalents, fmt.UNKNOWN),
            "",
        ),
        ("Cost", cost, ""),
    ]
    if totals.cost.unpriced_calls:
        rows.append(("Calls without a price", fmt.count(totals.cost.unpriced_calls), ""))
    return [*_table(("", "Tokens", "Share"), rows, right=(1, 2)), ""]


def _part(label: str, value: int | None, totals: Totals) -> tuple[str, str, str]:
    part = fmt.share(value, totals.total_input)
    return f"· {label}", fmt.count(value, fmt.UNKNOWN), fmt.ratio(part, "")


def _findings(result: AuditResult) -> Iterator[str]:
    yield "## Findings"
    yield ""
    if not result.findings:
        yield "None."
        yield ""
    currency = result.totals.cost.currency
    for number, finding in enumerate(by_money(result.findings), 1):
        yield from _finding(number, finding, currency)


def _finding(number: int, finding: FindingRow, currency: str) -> Iterator[str]:
    money = ""
    if finding.kind == "loss" and finding.lost is not None:
        money = f" – {fmt.amount(finding.lost.cost, currency, unknown='no price')}"  # noqa: RUF001
    yield f"### {number}. {escape(finding.title)}{money}"
    yield ""
    calls = ", ".join(code(call) for call in finding.calls[:5])
    more = f" and {len(finding.calls) - 5} more" if len(finding.calls) > 5 else ""
    tokens = f" · {finding.tokens_lost:,} tokens" if finding.tokens_lost else ""
    sure = confidence(finding.verdict, finding.evidence)
    yield f"{code(finding.rule)} {escape(finding.name)} · {sure}{tokens} · {calls}{more}"
    yield ""
    yield from (f"- Established: {escape(line)}" for line in finding.established)
    yield from (f"- To check: {escape(line)}" for line in finding.to_check)
    yield from (
        f"- Also possible: {code(rival.rule)} {escape(rival.why)}" for rival in finding.rivals
    )
    if finding.first_change is not None:
        place = finding.first_change
        yield f"- Changed at {code(place.path)}, byte {place.byte_offset:,}"
    if finding.fix is not None:
        yield f"- Fix: {escape(finding.fix.title)}"
        if finding.fix.patch:
            yield ""
            yield from (f"      {fmt.printable(line)}" for line in finding.fix.patch.splitlines())
    yield ""


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
        yield f"- {row.count:,} {escape(quality_words(row.kind))}{example}"
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


RENDERER = MarkdownRenderer()
