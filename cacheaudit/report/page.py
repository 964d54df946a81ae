"""Everything the HTML page shows, gathered in one pass over the calls."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from decimal import Decimal

import msgspec

from cacheaudit.model.money import ZERO, decimal
from cacheaudit.report import format as fmt
from cacheaudit.report.axis import by_calls, by_time
from cacheaudit.report.breaks import Alike, Breaks, alike
from cacheaudit.report.figures import Timeline, dearest
from cacheaudit.report.ledger import Agreement, Ledger
from cacheaudit.report.losses import LossTable, loss_table
from cacheaudit.report.metrics import Metric, Strip
from cacheaudit.report.opportunities import Opportunity, Place, marks, opportunities, places, wanted
from cacheaudit.report.provider_rules import facts
from cacheaudit.report.result import AuditResult, CallRow, Fact, Group
from cacheaudit.report.signs import Signs
from cacheaudit.report.summary import Lost, cost_text, lost, paid
from cacheaudit.report.svg import timeline_svg
from cacheaudit.report.trace import Bill, Line
from cacheaudit.report.verdict import Balance, balance

CALLS_IN_FULL = 1_000
CALLS_SHORTENED = 200
SHOWN_SESSIONS = 4
FEWEST_BARS = 60
BARS_FOLDED = 800
CALLS_ON_BOTH_AXES = 300
SHOWN_OPPORTUNITIES = 40


class NumberedCall(msgspec.Struct, frozen=True):
    """A call with its place in the result, from 1, and the opportunities that name it."""

    number: int
    row: CallRow
    marks: tuple[int, ...]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A timeline ready to be put on the page.

    ``views`` holds the drawing by axis name; the first is shown first.
    """

    session: str
    views: dict[str, str]
    calls: int
    each: int
    cost: str

    @property
    def both(self) -> bool:
        """Whether it can be seen along either axis."""
        return len(self.views) > 1


class Has(msgspec.Struct, frozen=True, kw_only=True):
    """What the timeline can show of these calls."""

    times: bool
    money: bool
    life: bool
    predictions: bool
    misses: bool
    long_writes: bool
    signs: tuple[str, ...]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What the template is given."""

    balance: Balance | None
    metrics: tuple[Metric, ...]
    figures: tuple[Figure, ...]
    has: Has
    calls: tuple[NumberedCall, ...]
    calls_total: int
    sessions_total: int
    opportunities: tuple[Opportunity, ...]
    opportunities_total: int
    places: dict[int, tuple[Place, ...]]
    models: dict[int, tuple[str, ...]]
    lost: Lost
    losses: LossTable
    breaks: tuple[Alike, ...]
    breaks_shown: int
    breaks_total: int
    map: str | None
    map_rows: int
    map_calls: int
    with_bodies: int
    by_day: tuple[Group, ...]
    by_agent: tuple[Group, ...]
    agreement: Agreement
    bill: tuple[Line, ...]
    bill_rest: Decimal
    bill_rest_calls: int
    price_of: dict[int, str]
    facts: tuple[Fact, ...]

    @property
    def has_every_call(self) -> bool:
        """Whether the call table is complete."""
        return len(self.calls) == self.calls_total

    @property
    def bill_total(self) -> Decimal:
        """Sum of the bill's lines."""
        return sum((line.amount for line in self.bill), ZERO) + self.bill_rest


class _Pass:
    """One pass over the calls."""

    def __init__(self, result: AuditResult, items: Sequence[Opportunity]) -> None:
        self.chosen = dearest(result.by_session, SHOWN_SESSIONS)
        self.lines = {group.key: Timeline(_bars(group, self.chosen)) for group in self.chosen}
        self.in_full = result.scope.calls <= CALLS_IN_FULL
        self.table = _Dearest(CALLS_IN_FULL if self.in_full else CALLS_SHORTENED)
        self.strip, self.ledger, self.agreement = Strip(), Ledger(), Agreement()
        self.breaks = Breaks(self.chosen[0].key if self.chosen else None)
        self.bill = Bill(result.prices)
        self.number = 0
        self.rows: dict[str, tuple[int, CallRow]] = {}
        self.models: dict[int, dict[str, None]] = {}
        self.prices: dict[int, str] = {}
        self.served: dict[tuple[str | None, str | None], None] = {}
        self.has_long = False
        self._signs = Signs()
        self._marks, self._wanted = marks(items), wanted(items)
        self._drawn = {item.number for item in items if item.kind != "note"}

    def take(self, row: CallRow) -> None:
        """Take the next call."""
        self.number += 1
        number = self.number
        mine = self._marks.get(row.id, ())
        parts = self.bill.take(row)
        signs = self._signs.of(row)
        line = self.lines.get(row.session)
        if line is not None:
            drawn = tuple(mark for mark in mine if mark in self._drawn)
            line.add(row, drawn, number, signs, parts)
        self.table.add(NumberedCall(number, row, mine))
        self.served[row.provider, row.model] = None
        for mark in mine:
            self.models.setdefault(mark, {})[row.model or fmt.UNKNOWN] = None
        if row.id in self._wanted:
            self.rows[row.id] = (number, row)
        if self.in_full and parts is not None and (price := self.bill.price_of(row)):
            self.prices[number] = price
        for taker in (self.strip, self.ledger, self.agreement):
            taker.take(row)
        self.breaks.take(number, row, mine)

    def has(self) -> Has:
        """Say what the figures can show."""
        slots = [slot for line in self.lines.values() for slot in line.slots]
        return Has(
            times=any(slot.at is not None for slot in slots),
            money=any(slot.cost for slot in slots),
            life=any(slot.alive is not None and slot.at is not None for slot in slots),
            predictions=any(slot.exact or slot.off for slot in slots),
            misses=any(slot.off for slot in slots),
            long_writes=any(slot.long for slot in slots),
            signs=tuple(sorted({sign for slot in slots for sign in slot.signs})),
        )


def build(result: AuditResult) -> Page:
    """Gather the page; memory is bounded however many calls there are."""
    balanced = balance(result)
    every = opportunities(result, balanced)
    items = every[:SHOWN_OPPORTUNITIES]
    work = _Pass(result, items)
    for row in result.calls:
        work.take(row)
    currency = result.totals.cost.currency
    shown = work.breaks.rows
    both = sum(line.calls for line in work.lines.values()) <= CALLS_ON_BOTH_AXES
    return Page(
        balance=balanced,
        metrics=work.strip.metrics(result),
        figures=tuple(
            _figure(group, work.lines[group.key], work.in_full, both) for group in work.chosen
        ),
        has=work.has(),
        calls=work.table.rows,
        calls_total=work.number,
        sessions_total=len(result.by_session),
        opportunities=tuple(items),
        opportunities_total=len(every),
        places={item.number: places(item, work.rows) for item in items},
        models={number: tuple(names) for number, names in work.models.items()},
        lost=lost(result.findings),
        losses=loss_table(result.findings),
        breaks=alike(shown),
        breaks_shown=len(shown),
        breaks_total=work.breaks.total,
        map=work.breaks.map_svg("Prompts below one another; the call table has the figures"),
        map_rows=work.breaks.map_rows,
        map_calls=work.breaks.mapped,
        with_bodies=work.breaks.with_strip,
        by_day=tuple(work.ledger.by_day(currency)),
        by_agent=tuple(work.ledger.by_agent(currency)),
        agreement=work.agreement,
        bill=tuple(work.bill.lines),
        bill_rest=work.bill.rest,
        bill_rest_calls=work.bill.rest_calls,
        price_of=work.prices,
        facts=tuple(facts(result, work.served)),
    )


def _bars(group: Group, chosen: Sequence[Group]) -> int:
    """Share the bars of the page out among the sessions that are drawn."""
    drawn = sum(other.totals.calls for other in chosen)
    if drawn <= CALLS_IN_FULL:
        return CALLS_IN_FULL
    return max(FEWEST_BARS, BARS_FOLDED * group.totals.calls // drawn)


class _Dearest:
    """Keeps the dearest calls, in their order; all of them while they fit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heap: list[tuple[tuple[Decimal, int, int], NumberedCall]] = []

    def add(self, call: NumberedCall) -> None:
        cost = decimal(call.row.cost) if call.row.cost is not None else ZERO
        item = ((cost, call.row.total_input or 0, -call.number), call)
        if len(self._heap) < self._limit:
            heapq.heappush(self._heap, item)
        else:
            heapq.heappushpop(self._heap, item)

    @property
    def rows(self) -> tuple[NumberedCall, ...]:
        return tuple(sorted((call for _, call in self._heap), key=lambda call: call.number))


def _figure(group: Group, line: Timeline, linked: bool, both: bool) -> Figure:
    currency, paid_ = group.totals.cost.currency, paid(group.totals)[0]
    label = f"Input call by call, session {group.key}; the call table has the figures"
    slots = line.slots
    axes = [axis for axis in (by_time(slots), by_calls(slots)) if axis is not None]
    if not both:
        axes = axes[:1]
    return Figure(
        session=group.key,
        views={axis.name: timeline_svg(line, axis, label, linked, currency) for axis in axes},
        calls=line.calls,
        each=line.each,
        cost=cost_text(group.totals, fmt.places_for([paid_]), ""),
    )
