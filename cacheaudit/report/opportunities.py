"""Findings as opportunities: one a rule, dearest first, with places, fix and what it would save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

import msgspec

from cacheaudit.model.money import ZERO, decimal, plain
from cacheaudit.report.catalogue import RulePage, group_of, rule_page
from cacheaudit.report.result import AuditResult, CallRow, FindingRow, FixRow, LossPlace, Step
from cacheaudit.report.summary import Lost, by_money, is_cut, lost
from cacheaudit.report.verdict import Balance

SHOWN_PLACES = 12
_KINDS = {"loss": 0, "error": 1}


class Place(msgspec.Struct, frozen=True):
    """One call of an opportunity."""

    number: int
    row: CallRow
    loss: LossPlace | None


class Opportunity(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of one rule and kind.

    Attributes:
        number: Place in the list, from 1; the timeline's marks refer to it.
        rule: Rule id.
        name: Rule name.
        title: One line.
        group: Prefix, Tools, Breakpoints …
        kind: ``loss``, ``note`` or ``error``.
        findings: Dearest first.
        lost: What they lost together.
        calls: Ids of the calls concerned, each once.
        sessions: How many sessions.
        verdicts: How sure the findings are, each word once.
        evidence: What they rest on, each word once.
        fix: What to do.
        saves: What the fixes save, each alone; ``None`` where not simulated.
        steps: Their steps of the waterfall.
        page: The rule's page.
    """

    number: int
    rule: str
    name: str
    title: str
    group: str
    kind: str
    findings: tuple[FindingRow, ...]
    lost: Lost
    calls: tuple[str, ...]
    sessions: int
    verdicts: tuple[str, ...]
    evidence: tuple[str, ...]
    fix: FixRow | None
    saves: Decimal | None
    steps: tuple[Step, ...]
    page: RulePage | None
    no_fix: str | None = None

    @property
    def cut(self) -> bool:
        """Whether more calls may be concerned than ``calls`` names."""
        return any(is_cut(finding) for finding in self.findings)


def opportunities(result: AuditResult, balance: Balance | None) -> list[Opportunity]:
    """Gather the findings by rule, dearest first; notes and failures come last."""
    grouped: dict[tuple[str, str], list[FindingRow]] = {}
    for finding in by_money(result.findings):
        grouped.setdefault((finding.kind, finding.rule), []).append(finding)
    unit = "money" if balance is None else balance.unit
    steps = result.what_if.waterfall
    made = [_opportunity(0, group, steps, unit) for group in grouped.values()]
    made.sort(key=_weight)
    return [msgspec.structs.replace(item, number=n) for n, item in enumerate(made, 1)]


def _weight(item: Opportunity) -> tuple[int, Decimal, Decimal, int, str]:
    cost = item.lost.cost or ZERO
    rank = _KINDS.get(item.kind, 2)
    return (rank, -cost, -item.lost.input_equivalents, -item.lost.tokens, item.rule)


def _opportunity(
    number: int, group: Sequence[FindingRow], steps: Iterable[Step], unit: str
) -> Opportunity:
    first = group[0]
    page = rule_page(first.rule)
    titles = {finding.title for finding in group}
    ids = {finding.id for finding in group}
    general = page.title if page is not None else first.title
    return Opportunity(
        number=number,
        rule=first.rule,
        name=first.name,
        title=first.title if len(titles) == 1 else general,
        group=group_of(first.rule),
        kind=first.kind,
        findings=tuple(group),
        lost=lost(group),
        calls=tuple(dict.fromkeys(call for finding in group for call in finding.calls)),
        sessions=len({finding.session for finding in group}),
        verdicts=tuple(dict.fromkeys(finding.verdict for finding in group)),
        evidence=tuple(dict.fromkeys(finding.evidence for finding in group)),
        fix=next((finding.fix for finding in group if finding.fix is not None), None),
        saves=_saves(group, unit),
        steps=tuple(step for step in steps if ids.intersection(step.findings)),
        page=page,
        no_fix=next((finding.no_fix for finding in group if finding.no_fix is not None), None),
    )


def _saves(group: Sequence[FindingRow], unit: str) -> Decimal | None:
    known: list[Decimal] = []
    for finding in group:
        alone = None if finding.fix is None else finding.fix.saves_alone
        if alone is None:
            continue
        value = alone.cost if unit == "money" else alone.input_equivalents
        if value is not None:
            known.append(decimal(value))
    return sum(known, ZERO) if known else None


def marks(items: Iterable[Opportunity]) -> dict[str, tuple[int, ...]]:
    """Say for each call which opportunities name it."""
    found: dict[str, tuple[int, ...]] = {}
    for item in items:
        for call in item.calls:
            found[call] = (*found.get(call, ()), item.number)
    return found


def wanted(items: Iterable[Opportunity]) -> set[str]:
    """Ids of the calls that the tables of places show."""
    return {call for item in items for call in item.calls[:SHOWN_PLACES]}


def places(item: Opportunity, rows: Mapping[str, tuple[int, CallRow]]) -> tuple[Place, ...]:
    """List the first calls of an opportunity, in their order."""
    losses = {place.call: place for finding in item.findings for place in finding.places}
    found = [
        Place(*rows[call], losses.get(call)) for call in item.calls[:SHOWN_PLACES] if call in rows
    ]
    return tuple(sorted(found, key=lambda place: place.number))


def before_after(item: Opportunity, balance: Balance | None) -> tuple[str, str] | None:
    """What was paid, and what would have been with this fix alone."""
    if balance is None or item.saves is None:
        return None
    return plain(balance.paid), plain(balance.paid - item.saves)


__all__ = [
    "Opportunity",
    "Place",
    "before_after",
    "marks",
    "opportunities",
    "places",
    "wanted",
]
