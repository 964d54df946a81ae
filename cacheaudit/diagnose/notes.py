"""Joins notes of many sessions that say the same, so that a report is not a list of them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec

from cacheaudit.diagnose.rule import find_rule
from cacheaudit.model.finding import Finding, Fix, Loss, Rival
from cacheaudit.model.plural import plural

_EXAMPLES = 5
_CALLS = 50
_LISTED = 8


class _Group:
    """Notes of one rule and verdict."""

    def __init__(self, first: Finding) -> None:
        self.first = first
        self.sessions = 0
        self.calls = 0
        self.ids: list[str] = []
        self.lines: list[str] = []
        self.checks: dict[str, None] = {}
        self.rivals: dict[str, Rival] = {}
        self.titles: set[str] = set()
        self.equivalents: Decimal | None = None
        self.cost: Decimal | None = Decimal(0)

    def add(self, finding: Finding) -> None:
        self.sessions += 1
        self.calls += len(finding.calls)
        self.ids.extend(finding.calls[: _CALLS - len(self.ids)])
        self.titles.add(finding.title)
        if finding.established and len(self.lines) < _EXAMPLES:
            self.lines.append(f"{finding.session}: {finding.established[0]}")
        self.checks.update(dict.fromkeys(finding.to_check))
        for rival in finding.rivals:
            self.rivals.setdefault(rival.rule, rival)
        saved = None if finding.fix is None else finding.fix.saves_alone
        if saved is not None:
            self.equivalents = saved.input_equivalents + (self.equivalents or Decimal(0))
            has_cost = self.cost is not None and saved.cost is not None
            self.cost = (
                (self.cost or Decimal(0)) + saved.cost
                if has_cost and saved.cost is not None
                else None
            )

    def finding(self, title: str) -> Finding:
        if self.sessions == 1:
            return self.first
        more = self.sessions - len(self.lines)
        return msgspec.structs.replace(
            self.first,
            id=f"{self.first.rule}:across:{self.first.verdict}",
            title=title,
            calls=tuple(dict.fromkeys(self.ids)),
            established=(
                f"{plural(self.calls, 'call')} in {self.sessions:,} sessions.",
                *self.lines,
                *((f"The same holds for {plural(more, 'more session')}.",) if more else ()),
            ),
            to_check=tuple(self.checks)[:_LISTED],
            rivals=tuple(self.rivals.values())[:_LISTED],
            fix=self._fix(),
            session=None,
        )

    def _fix(self) -> Fix | None:
        fix = self.first.fix
        if fix is None or self.equivalents is None:
            return fix
        return msgspec.structs.replace(fix, saves_alone=Loss(self.equivalents, self.cost))


class Notes:
    """Notes of an audit, by rule and verdict; of each a few examples are kept."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], _Group] = {}

    def add(self, notes: Sequence[Finding]) -> None:
        """Take in the notes of one session."""
        for note in notes:
            key = (note.rule, note.verdict)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(note)
            group.add(note)

    def findings(self) -> tuple[Finding, ...]:
        """Return one finding a group; a note of a single session as it was."""
        found = []
        for (key, _), group in self._groups.items():
            rule = find_rule(key)
            title = (
                next(iter(group.titles)) if len(group.titles) == 1 or rule is None else rule.title
            )
            found.append(group.finding(title))
        return tuple(found)
