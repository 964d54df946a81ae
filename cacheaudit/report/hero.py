"""What the page says on top, and the rows of its tables, ready for the templates."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from cacheaudit.model.money import ZERO, decimal, plain
from cacheaudit.report import format as fmt
from cacheaudit.report.catalogue import checks
from cacheaudit.report.cells import Cell, LedgerTable, cell, ledger
from cacheaudit.report.ledger import BINS
from cacheaudit.report.losses import HEADS
from cacheaudit.report.opportunities import Opportunity, before_after
from cacheaudit.report.page import Page
from cacheaudit.report.result import AuditResult, Totals
from cacheaudit.report.settings import (
    accuracy_words,
    paid_title,
    places_of,
    range_words,
    scenario_lines,
    score_words,
    shown,
)
from cacheaudit.report.summary import (
    NOT_LOOKED_FOR,
    paid,
    part_share,
    read_sentence,
    source_words,
    tokens,
    write_tiers,
    writes,
)
from cacheaudit.report.verdict import Balance


class Part(msgspec.Struct, frozen=True):
    """One colour of the input bar."""

    label: str
    css: str
    tokens: str
    share: str
    width: str
    note: str = ""


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three numbers."""

    label: str
    cell: Cell
    note: str
    css: str = ""
    sign: str = ""


class Fall(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the waterfall; places are per cent of the largest sum."""

    title: str
    kind: str
    left: str
    width: str
    change: Cell
    after: Cell
    alone: str = ""
    edit: str = ""
    numbers: tuple[int, ...] = ()


class Bin(msgspec.Struct, frozen=True):
    """Calls whose predicted read is about so far from the reported one."""

    label: str
    fewer: int
    more: int
    fewer_width: str
    more_width: str


def context(result: AuditResult, page: Page) -> dict[str, Any]:
    """Gather what the templates show beside result and page."""
    currency = result.totals.cost.currency
    value, origin = paid(result.totals)
    return {
        "currency": currency,
        "title": headline(result, page),
        "lead": lead(result, page),
        "scope": _scope(result),
        "has_useless": _has_useless(result),
        "numbers": _numbers(result, page),
        "score_words": "" if page.balance is None else score_words(page.balance),
        "no_score": _no_score(page.balance),
        "reason": _reason(result),
        "paid_places": fmt.places_for([value]),
        "paid_origin": origin,
        "bill_is_whole": value is not None and page.bill_total == decimal(value),
        "parts": _parts(result.totals),
        "output": tokens(result.totals, "output", fmt.UNKNOWN),
        "falls": _falls(page),
        "scenarios": scenario_lines(result, page.balance),
        "accuracy": accuracy_words(result),
        "bins": _bins(page),
        "loss_heads": HEADS,
        "loss_places": fmt.places_for(
            [page.losses.total.lost.cost_text if page.lost.cost else None]
        ),
        "groups": _groups(page.opportunities),
        "models": sorted({model for names in page.models.values() for model in names}),
        "before_after": lambda item: _before_after(item, page.balance),
        "saves": lambda item: _saves(item, page.balance),
        "ledgers": _ledgers(result, page),
        "checks": checks(result),
        "price_numbers": {price.id: n for n, price in enumerate(result.prices, 1)},
        "shown_calls": frozenset(call.number for call in page.calls),
        "models_all": len(result.by_model),
        "one_day": (result.scope.first or "")[:10] == (result.scope.last or "")[:10],
        "call_cost": lambda cost: fmt.money(cost, currency, 4, fmt.DASH),
    }


def headline(result: AuditResult, page: Page) -> str:
    """Say the result in one sentence."""
    if not result.scope.calls:
        return "No calls were found in what was read."
    total = page.lost
    if not result.diagnosed:
        return "What this cost; losses were not looked for."
    if not total.findings:
        return "Nothing that was read here was lost to a cache miss."
    value = paid(result.totals)[0]
    if total.cost is not None and value is not None and decimal(value):
        part = fmt.whole_percent(total.cost, decimal(value))
        return f"{_upper(part)} of the bill went into cache misses."
    weight = None if total.weight is None else result.totals.input_equivalents
    if weight is not None and decimal(weight):
        part = fmt.whole_percent(total.input_equivalents, decimal(weight))
        return f"{_upper(part)} of the weighted input went into cache misses."
    return f"{fmt.plural(total.tokens, 'token was', 'tokens were')} sent again after cache misses."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def lead(result: AuditResult, page: Page) -> list[str]:
    """Name the leading cause, and how much was read."""
    sentences: list[str] = []
    causes = page.losses.rows
    titles = {item.rule: item.title for item in page.opportunities if item.kind == "loss"}
    if causes:
        first = causes[0]
        title = titles.get(first.rule, first.name)
        share = fmt.whole_percent(first.share, Decimal(1))
        whole = len(causes) == 1 and not page.losses.remainder.lost.tokens
        start = "All of it has one cause" if whole else f"{_upper(share)} of that has one cause"
        sentences.append(f"{start}: {title[:1].lower()}{title[1:].rstrip('.')} ({first.rule}).")
    elif page.losses.remainder.lost.tokens:
        sentences.append("No cause could be established for it.")
    if result.scope.calls:
        sentences.append(read_sentence(result.totals, "came"))
    return sentences


def _scope(result: AuditResult) -> list[str]:
    scope = result.scope
    models = [group.key for group in result.by_model]
    named = ", ".join(models[:2]) + (f" and {len(models) - 2} more" if len(models) > 2 else "")
    session = result.by_session[0].key if len(result.by_session) == 1 else ""
    pieces = [
        f"session {fmt.short_id(session, 28)}" if session else "",
        fmt.plural(scope.calls, "call"),
        "" if session else fmt.plural(scope.sessions, "session"),
        fmt.period(scope.first, scope.last) if scope.calls else "",
        named,
        f"from {source_words(scope)}" if scope.sources else "",
        f"prices of {result.tool.prices_as_of}" if result.tool.prices_as_of else "",
        f"cacheaudit {result.tool.version}",
    ]
    return [piece for piece in pieces if piece]


def _reason(result: AuditResult) -> str:
    """Say why nothing was simulated."""
    if result.what_if.reason:
        return result.what_if.reason
    refused = result.simulation.refused
    if refused and not result.simulation.calls:
        return ", ".join(
            f"{fmt.plural(n, 'call')}: {why.replace('_', ' ')}" for why, n in refused.items()
        )
    return "these calls were not simulated"


def _no_score(balance: Balance | None) -> str:
    if balance is None:
        return "No score without a simulation"
    if balance.worst is None or balance.ideal is None:
        return (
            "No score: not all of these calls can be simulated without any cache and with an ideal "
            "one"
        )
    return "No score: no cache could have saved anything here"


def _numbers(result: AuditResult, page: Page) -> list[Number]:
    currency = result.totals.cost.currency
    value, origin = paid(result.totals)
    first = Number(label="Paid", cell=cell(value, currency), note=_paid_note(result.totals, origin))
    balance = page.balance
    if balance is None:
        second = _lost(page, value, currency) if result.diagnosed else _not_looked_for()
        return [first, second, _no_best(result)]
    places = places_of(balance)

    def amount(sum_: Decimal) -> Cell:
        unit = balance.currency if balance.unit == "money" else "ordinary input tokens"
        digits = places if sum_ else min(places, 2)
        return Cell(shown(sum_, balance, digits), f"{plain(sum_)} {unit}")

    if balance.unit == "equivalents":
        note = "ordinary input tokens; no price is known"
        first = Number(label="Input, weighted", cell=amount(balance.paid), note=note)
    share = fmt.whole_percent(balance.avoidable, balance.paid) if balance.avoidable > 0 else ""
    spread = range_words(balance)
    note = "; ".join(piece for piece in (share and f"{share} of it", spread) if piece)
    second = Number(
        label="Avoidable",
        cell=amount(balance.avoidable),
        note=note or _no_saving(result, page),
        css="loss" if balance.avoidable > 0 else "",
        sign="−",  # noqa: RUF001 - a minus sign
    )
    fixes = fmt.plural(len(result.what_if.waterfall), "fix", "fixes")
    modes = result.simulation.modes
    how = "from sizes alone" if modes.get("sizes") and not modes.get("bodies") else "simulated"
    third = Number(
        label="Best case",
        cell=amount(balance.best),
        note=f"after {fixes}, {how}" if result.what_if.waterfall else "as it was",
        css="best",
        sign="=",
    )
    return [first, second, third]


def _no_saving(result: AuditResult, page: Page) -> str:
    """Say why nothing was avoidable."""
    if result.what_if.waterfall or _has_useless(result):
        return "the fixes would not have paid"
    return "no fix could be tried" if page.lost.findings else "there is nothing to mend"


def _has_useless(result: AuditResult) -> bool:
    """Whether a fix was tried and is not advised, since it saves nothing."""
    return any(finding.no_fix is not None for finding in result.findings)


def _not_looked_for() -> Number:
    return Number(label="Lost to misses", cell=Cell(fmt.DASH), note=NOT_LOOKED_FOR)


def _lost(page: Page, value: str | None, currency: str) -> Number:
    total = page.lost
    css = "loss" if total.findings else ""
    if not total.findings:
        none = cell("0", currency, 2) if total.cost is not None else Cell("0")
        return Number(label="Lost to misses", cell=none, note="no loss was found")
    if total.weight is None:
        figure = Cell(fmt.count(total.tokens))
        return Number(label="Lost to misses", cell=figure, note="tokens sent again", css=css)
    weighted = f"{fmt.equivalents(total.weight)} ordinary input tokens"
    if total.cost is None:
        figure = Cell(fmt.equivalents(total.weight))
        note = "ordinary input tokens; no price is known"
        return Number(label="Lost to misses", cell=figure, note=note, css=css)
    notes = [weighted]
    if value is not None and decimal(value):
        notes.insert(0, f"{fmt.whole_percent(total.cost, decimal(value))} of it")
    if total.unpriced:
        notes.append(f"{total.unpriced} without a price")
    places = fmt.places_for([value])
    figure = cell(total.cost_text, currency, places)
    return Number(label="Lost to misses", cell=figure, note="; ".join(notes), css=css)


def _no_best(result: AuditResult) -> Number:
    return Number(label="Best case", cell=Cell(fmt.DASH), note=f"not known: {_reason(result)}")


def _paid_note(totals: Totals, origin: str) -> str:
    cost = totals.cost
    notes = {"computed": "computed from prices", "reported": "reported by the record"}
    parts = [notes.get(origin, cost.reason or "no price is known")]
    if origin == "computed" and cost.reported is not None:
        parts.append(f"the record states {fmt.amount(cost.reported, cost.currency)}")
    if cost.unpriced_calls and origin != "not known":
        parts.append(f"{fmt.plural(cost.unpriced_calls, 'call')} without a price")
    return "; ".join(parts)


def _parts(totals: Totals) -> list[Part]:
    whole = totals.total_input
    if not whole:
        return []
    listed = (
        ("Read from the cache", "read", "cache_read", ""),
        ("Written to it", "write", "cache_write", write_tiers(totals)),
        ("Uncached", "uncached", "uncached_input", ""),
    )
    values = {"cache_read": totals.cache_read, "cache_write": writes(totals)}
    values["uncached_input"] = totals.uncached_input
    parts = [
        Part(
            label,
            css,
            tokens(totals, part, fmt.UNKNOWN),
            part_share(totals, part),
            fmt.share(values[part], whole) or "0",
            note,
        )
        for label, css, part, note in listed
    ]
    rest = whole - sum(value or 0 for value in values.values())
    if rest > 0:
        part = fmt.share(rest, whole)
        parts.append(
            Part("Of unknown kind", "unsplit", fmt.count(rest), fmt.ratio(part), part or "0")
        )
    return parts


def _falls(page: Page) -> list[Fall]:
    """Draw the steps from paid to best case."""
    balance = page.balance
    if balance is None or not balance.leaps:
        return []
    places = places_of(balance)
    sums = [balance.paid, balance.best]
    sums += [value for leap in balance.leaps for value in (leap.before, leap.after)]
    highest = max(sums) or Decimal(1)
    lowest = min(*sums, ZERO)

    def place(value: Decimal) -> str:
        return f"{(value - lowest) * 100 / (highest - lowest):.3f}"

    def wide(value: Decimal) -> str:
        return f"{abs(value) * 100 / (highest - lowest):.3f}"

    def write(value: Decimal, sign: str = "") -> Cell:
        return Cell(sign + shown(abs(value), balance, places), plain(value))

    rules = {i.rule: i.number for i in page.opportunities}
    ids = {finding.id: rules[i.rule] for i in page.opportunities for finding in i.findings}
    rows = [
        Fall(
            title=paid_title(balance),
            kind="total",
            left=place(ZERO),
            width=wide(balance.paid),
            change=Cell(""),
            after=write(balance.paid),
        )
    ]
    for leap in balance.leaps:
        step = leap.step
        kind = "apart" if step is None and leap.title.startswith("Billed") else "saves"
        kind = "costs" if leap.saves < 0 and kind == "saves" else kind
        numbers = () if step is None else tuple(dict.fromkeys(ids.get(f, 0) for f in step.findings))
        rows.append(
            Fall(
                title=leap.title,
                kind=kind,
                left=place(min(leap.before, leap.after)),
                width=wide(leap.saves),
                change=write(leap.saves, "−" if leap.saves > 0 else "+" if leap.saves else ""),  # noqa: RUF001
                after=write(leap.after),
                alone="" if leap.alone is None else shown(leap.alone, balance, places),
                edit="" if step is None else step.edit or "",
                numbers=tuple(number for number in numbers if number),
            )
        )
    rows.append(
        Fall(
            title="Best case",
            kind="best",
            left=place(ZERO),
            width=wide(balance.best),
            change=Cell(""),
            after=write(balance.best),
        )
    )
    return rows


def _bins(page: Page) -> list[Bin]:
    agreement = page.agreement
    most = max((*agreement.fewer.values(), *agreement.more.values()), default=0)
    if not most:
        return []

    def width(count: int) -> str:
        return f"{count * 100 / most:.1f}"

    return [
        Bin(name, less, more, width(less), width(more))
        for name in BINS
        for less, more in [(agreement.fewer.get(name, 0), agreement.more.get(name, 0))]
    ]


def _groups(items: Sequence[Opportunity]) -> list[tuple[str, int]]:
    counted: dict[str, int] = {}
    for item in items:
        counted[item.group] = counted.get(item.group, 0) + 1
    return list(counted.items())


def _before_after(item: Opportunity, balance: Balance | None) -> tuple[Cell, Cell] | None:
    pair = before_after(item, balance)
    if pair is None or balance is None:
        return None
    places = places_of(balance)
    first, second = (shown(decimal(value), balance, places) for value in pair)
    return Cell(first, pair[0]), Cell(second, pair[1])


def _saves(item: Opportunity, balance: Balance | None) -> Cell | None:
    if balance is None or item.saves is None:
        return None
    return Cell(shown(item.saves, balance, places_of(balance)), plain(item.saves))


def _ledgers(result: AuditResult, page: Page) -> list[LedgerTable]:
    tables = [
        ledger("Purpose", result.by_purpose),
        ledger("Model", result.by_model),
        ledger("Day", page.by_day),
        ledger("Lane", page.by_agent),
    ]
    if len(result.by_session) > 1:
        tables.append(ledger("Session", result.by_session))
    return [table for table in tables if table.rows]
