"""Everything the HTML page shows, gathered in one pass over the calls."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import msgspec

from cacheaudit.model.money import decimal, plain
from cacheaudit.report import format as fmt
from cacheaudit.report.figures import Timeline, dearest
from cacheaudit.report.result import AuditResult, CallRow, FindingRow, Group, Totals
from cacheaudit.report.summary import Cause, Lost, by_money, causes, lost, paid, writes
from cacheaudit.report.svg import timeline_svg
from cacheaudit.report.words import EVIDENCE

CALLS_IN_FULL = 1_000
CALLS_SHORTENED = 200
SHOWN_SESSIONS = 4
FEWEST_BARS = 60
SHOWN_GROUPS = 50
SHOWN_FINDINGS = 200


class NumberedCall(msgspec.Struct, frozen=True):
    """A call with its place in the result, from 1, and the findings that name it."""

    number: int
    row: CallRow
    marks: tuple[int, ...]


class Figure(msgspec.Struct, frozen=True):
    """A timeline ready to be put on the page."""

    session: str
    svg: str
    calls: int
    each: int
    cost: str


class Cell(msgspec.Struct, frozen=True):
    """A figure as shown and as it really is."""

    text: str
    exact: str = ""


class LedgerRow(msgspec.Struct, frozen=True):
    """Totals of one key."""

    key: str
    cells: tuple[Cell, ...]


class CauseRow(msgspec.Struct, frozen=True):
    """One line of the loss table."""

    rule: str
    name: str
    findings: int
    evidence: str
    tokens: str
    equivalents: str
    cost: Cell
    share: str
    width: str


class Page(msgspec.Struct, frozen=True):
    """What the template is given."""

    figures: tuple[Figure, ...]
    calls: tuple[NumberedCall, ...]
    calls_total: int
    sessions_total: int
    findings: tuple[tuple[int, FindingRow], ...]
    findings_total: int
    lost: Lost
    causes: tuple[CauseRow, ...]
    by_model: tuple[LedgerRow, ...]
    by_purpose: tuple[LedgerRow, ...]
    by_session: tuple[LedgerRow, ...]

    @property
    def has_every_call(self) -> bool:
        """Whether the call table is complete."""
        return len(self.calls) == self.calls_total


def build(result: AuditResult) -> Page:
    """Gather the page; memory is bounded however many calls there are."""
    findings = list(enumerate(by_money(result.findings), 1))
    marks = _marks(findings)
    chosen = dearest(result.by_session, SHOWN_SESSIONS)
    lines = {group.key: Timeline(_bars(group, chosen)) for group in chosen}
    in_full = result.scope.calls <= CALLS_IN_FULL
    table = _Dearest(CALLS_IN_FULL if in_full else CALLS_SHORTENED)
    number = 0
    for row in result.calls:
        number += 1
        mine = marks.get(row.id, ())
        line = lines.get(row.session)
        if line is not None:
            line.add(row, mine, number)
        table.add(NumberedCall(number, row, mine))
    currency = result.totals.cost.currency
    return Page(
        figures=tuple(_figure(group, lines[group.key], in_full) for group in chosen),
        calls=table.rows,
        calls_total=number,
        sessions_total=len(result.by_session),
        findings=tuple(findings[:SHOWN_FINDINGS]),
        findings_total=len(findings),
        lost=lost(result.findings),
        causes=_causes(result.findings, currency),
        by_model=ledger(result.by_model),
        by_purpose=ledger(result.by_purpose),
        by_session=ledger(result.by_session),
    )


def _bars(group: Group, chosen: Sequence[Group]) -> int:
    """Share the bars of the page out among the sessions that are drawn."""
    drawn = sum(other.totals.calls for other in chosen)
    if drawn <= CALLS_IN_FULL:
        return CALLS_IN_FULL
    return max(FEWEST_BARS, CALLS_IN_FULL * group.totals.calls // drawn)


class _Dearest:
    """Keeps the dearest calls, in their order; all of them while they fit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heap: list[tuple[tuple[object, int, int], NumberedCall]] = []

    def add(self, call: NumberedCall) -> None:
        cost = decimal(call.row.cost) if call.row.cost is not None else decimal(0)
        item = ((cost, call.row.total_input or 0, -call.number), call)
        if len(self._heap) < self._limit:
            heapq.heappush(self._heap, item)
        else:
            heapq.heappushpop(self._heap, item)

    @property
    def rows(self) -> tuple[NumberedCall, ...]:
        return tuple(sorted((call for _, call in self._heap), key=lambda call: call.number))


def _marks(findings: Sequence[tuple[int, FindingRow]]) -> dict[str, tuple[int, ...]]:
    marks: dict[str, tuple[int, ...]] = {}
    for number, finding in findings:
        for call in finding.calls:
            marks[call] = (*marks.get(call, ()), number)
    return marks


def _figure(group: Group, line: Timeline, linked: bool) -> Figure:
    cost = paid(group.totals)[0]
    label = f"Input tokens call by call, session {group.key}; the call table has the figures"
    return Figure(
        session=group.key,
        svg=timeline_svg(line, label, linked),
        calls=line.calls,
        each=line.each,
        cost=fmt.amount(cost, group.totals.cost.currency, ""),
    )


def _causes(findings: Sequence[FindingRow], currency: str) -> tuple[CauseRow, ...]:
    rows = causes(findings)
    total = lost(findings)
    places = fmt.places_for(row.lost.cost_text for row in rows)
    return tuple(_cause(row, total, findings, currency, places) for row in rows)


def _cause(
    cause: Cause, total: Lost, findings: Sequence[FindingRow], currency: str, places: int
) -> CauseRow:
    counted: dict[str, int] = {}
    for finding in findings:
        if finding.rule == cause.rule and finding.kind == "loss":
            counted[finding.evidence] = counted.get(finding.evidence, 0) + 1
    evidence = ", ".join(
        EVIDENCE.get(name, name) + (f" ({number})" if number < cause.lost.findings else "")
        for name, number in counted.items()
    )
    exact = cause.lost.cost_text
    if total.cost and cause.lost.cost is not None:
        share = fmt.share(cause.lost.cost, total.cost)
    else:
        share = fmt.share(cause.lost.input_equivalents, total.input_equivalents)
    return CauseRow(
        rule=cause.rule,
        name=cause.name,
        findings=cause.lost.findings,
        evidence=evidence,
        tokens=fmt.count(cause.lost.tokens),
        equivalents=fmt.equivalents(plain(cause.lost.input_equivalents)),
        cost=Cell(
            fmt.money(exact, currency, places, "no price"),
            f"{exact} {currency}" if exact is not None else "",
        ),
        share=fmt.ratio(share, ""),
        width=share or "0",
    )


def ledger(groups: Sequence[Group]) -> tuple[LedgerRow, ...]:
    """Lay out totals by key, the first ones where there are many."""
    places = fmt.places_for(paid(group.totals)[0] for group in groups)
    return tuple(
        LedgerRow(group.key, _cells(group.totals, places)) for group in groups[:SHOWN_GROUPS]
    )


def _cells(totals: Totals, places: int) -> tuple[Cell, ...]:
    value, origin = paid(totals)
    bound = "≥ " if totals.output_is_lower_bound else ""
    partly = "≥ " if totals.cost.unpriced_calls and origin == "computed" else ""
    return (
        Cell(f"{totals.calls:,}"),
        Cell(fmt.count(totals.uncached_input)),
        Cell(fmt.count(writes(totals))),
        Cell(fmt.count(totals.cache_read)),
        Cell(bound + fmt.count(totals.output)),
        Cell(fmt.ratio(totals.hit_ratio, fmt.DASH)),
        Cell(
            partly + fmt.money(value, totals.cost.currency, places, fmt.DASH),
            f"{value} {totals.cost.currency}, {origin}" if value is not None else "",
        ),
    )
