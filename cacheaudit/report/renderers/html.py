"""HTML: one file that loads nothing, reads well without scripts, on paper and in the dark."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import BinaryIO

import jinja2
import msgspec
from markupsafe import Markup

from cacheaudit.model.money import decimal, plain
from cacheaudit.report import format as fmt
from cacheaudit.report import page as pages
from cacheaudit.report.groups import GROUP_HEADS
from cacheaudit.report.page import Cell, Page
from cacheaudit.report.renderer import View, not_for_usage
from cacheaudit.report.result import AuditResult, LossRow, Totals, UsageResult
from cacheaudit.report.summary import paid, source_words, verdict, write_tiers, writes
from cacheaudit.report.words import confidence, quality_words


class Part(msgspec.Struct, frozen=True):
    """One colour of the input bar."""

    label: str
    css: str
    tokens: str
    share: str
    width: str
    note: str = ""


class HtmlRenderer:
    """Writes the report page."""

    name = "html"
    suffix = ".html"

    def audit(self, result: AuditResult, out: BinaryIO, view: View) -> None:
        """Write the result of an audit."""
        del view
        page = pages.build(result)
        currency = result.totals.cost.currency
        value, origin = paid(result.totals)
        places = fmt.places_for([value])
        script = _asset("report.js")
        text = _template().render(
            result=result,
            page=page,
            sentences=verdict(result),
            scope=_scope(result),
            heads=GROUP_HEADS,
            paid=_cell(value, currency, places),
            paid_note=_paid_note(result.totals, origin),
            lost=_lost_cell(page, currency, places),
            lost_note=_lost_note(page, value),
            hit_ratio=fmt.ratio(result.totals.hit_ratio),
            equivalents=fmt.equivalents(result.totals.input_equivalents, fmt.UNKNOWN),
            total_input=fmt.count(result.totals.total_input, fmt.UNKNOWN),
            output=fmt.count(result.totals.output, fmt.UNKNOWN),
            parts=_parts(result.totals),
            chips=_chips(page),
            unexplained=fmt.count(result.simulation.unexplained_tokens),
            unexplained_note=_unexplained_note(result),
            lost_cell=lambda row: _loss(row, currency),
            call_cost=lambda cost: fmt.money(cost, currency, 4, fmt.DASH),
            count=fmt.count,
            dash=fmt.DASH,
            confidence=confidence,
            quality_words=quality_words,
            css=Markup(_asset("report.css")),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            script_hash=_hash(script),
        )
        out.write(text.encode())

    def usage(self, result: UsageResult, out: BinaryIO, view: View) -> None:
        """Refuse: the page is made for audits."""
        del result, out, view
        raise not_for_usage(self.name)


def _asset(name: str) -> str:
    return (resources.files("cacheaudit.report") / "assets" / name).read_text(encoding="utf-8")


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(_asset("report.html.j2"))


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _scope(result: AuditResult) -> list[str]:
    scope = result.scope
    pieces = [
        fmt.plural(scope.calls, "call"),
        fmt.plural(scope.sessions, "session"),
        fmt.period(scope.first, scope.last) if scope.calls else "",
        f"from {source_words(scope)}" if scope.sources else "",
        fmt.size(scope.bytes) if scope.bytes else "",
        f"prices of {result.tool.prices_as_of}" if result.tool.prices_as_of else "",
    ]
    return [piece for piece in pieces if piece]


def _cell(value: str | None, currency: str, places: int, unknown: str = fmt.UNKNOWN) -> Cell:
    exact = "" if value is None else f"{value} {currency}"
    return Cell(fmt.money(value, currency, places, unknown), exact)


def _lost_cell(page: Page, currency: str, places: int) -> Cell:
    if page.lost.cost is None:
        return Cell(fmt.equivalents(plain(page.lost.input_equivalents)))
    return _cell(page.lost.cost_text, currency, places)


def _loss(row: LossRow, currency: str) -> Cell:
    if row.cost is None:
        return Cell(f"{fmt.equivalents(row.input_equivalents)} input tokens")
    return _cell(row.cost, currency, fmt.places_for([row.cost]))


def _paid_note(totals: Totals, origin: str) -> str:
    cost = totals.cost
    notes = {"computed": "computed from prices", "reported": "as the record says"}
    parts = [notes.get(origin, cost.reason or "no price is known")]
    if origin == "computed" and cost.reported is not None:
        parts.append(f"the record states {fmt.amount(cost.reported, cost.currency)}")
    if cost.unpriced_calls and origin != "not known":
        parts.append(f"{fmt.plural(cost.unpriced_calls, 'call')} without a price")
    return "; ".join(parts)


def _lost_note(page: Page, value: str | None) -> str:
    total = page.lost
    if not total.findings:
        return "no loss was found"
    if total.cost is None:
        return "ordinary input tokens; no price is known"
    weighted = f"{fmt.equivalents(plain(total.input_equivalents))} ordinary input tokens"
    share = ""
    if value is not None and decimal(value):
        share = f"{fmt.whole_percent(total.cost, decimal(value))} of what was paid; "
    unpriced = f"; {total.unpriced} without a price" if total.unpriced else ""
    return f"{share}{weighted}{unpriced}"


def _unexplained_note(result: AuditResult) -> str:
    if result.simulation.unexplained_tokens is None:
        return "not known: these calls were not simulated"
    return "tokens that the provider's rules do not account for"


def _parts(totals: Totals) -> list[Part]:
    whole = totals.total_input
    if not whole:
        return []
    shown = (
        ("Read from the cache", "read", totals.cache_read, ""),
        ("Written to it", "write", writes(totals), write_tiers(totals)),
        ("Uncached", "uncached", totals.uncached_input, ""),
    )
    parts = [
        Part(label, css, fmt.count(value, fmt.UNKNOWN), fmt.ratio(part, ""), part or "0", note)
        for label, css, value, note in shown
        for part in [fmt.share(value, whole)]
    ]
    rest = whole - sum(value or 0 for _, _, value, _ in shown)
    if rest > 0:
        part = fmt.share(rest, whole)
        parts.append(
            Part("Of unknown kind", "unsplit", fmt.count(rest), fmt.ratio(part), part or "0")
        )
    return parts


def _chips(page: Page) -> list[str]:
    found = {finding.verdict for _, finding in page.findings}
    kinds = {finding.kind for _, finding in page.findings}
    chips = [name for name in ("proved", "consistent", "unknown") if name in found]
    return chips + [name for name in ("note", "error") if name in kinds]


RENDERER = HtmlRenderer()
