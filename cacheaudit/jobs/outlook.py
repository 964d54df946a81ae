"""What all sessions of an audit predict and would save, in the shape of its result."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import msgspec

from cacheaudit.diagnose.rule import find_rule
from cacheaudit.jobs.command import Commands
from cacheaudit.jobs.predict import (
    EDITS,
    IDEAL,
    LONG,
    NO_CACHING,
    POLICIES,
    REFRESHED,
    TITLES,
    Change,
    FixStep,
    SessionPrediction,
)
from cacheaudit.jobs.rulebook import UsedRules, switch_rows
from cacheaudit.model.finding import Finding
from cacheaudit.model.money import decimal, plain
from cacheaudit.report.result import SavingRow, Scenario, Simulation, Step, Totals, WhatIf
from cacheaudit.simulate.bill import Saving
from cacheaudit.simulate.switches import Switches

_ORDER: Final = (NO_CACHING, LONG, REFRESHED, IDEAL)
# Both ends of the scale mean something only where they are known of every session.
_WHOLE: Final = frozenset({NO_CACHING, IDEAL})
_MOST_IDS: Final = 200
_UNTRIED: Final = "the disputed rules were not tried"


class Outlook:
    """Sums predictions of session after session; memory grows with the rules, not the sessions.

    Args:
        switches: Disputed rules in force.
    """

    def __init__(self, switches: Switches | None = None) -> None:
        self._switches = switches or Switches()
        self._sessions = self._calls = self._exact = self._writes = self._error = 0
        self._unexplained = self._surplus = 0
        self._modes: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        self._change = Change()
        self._difference = Change()
        self._scenarios: dict[str, Change] = {}
        self._known: dict[str, int] = {}
        self._steps: dict[str, _Gathered] = {}
        self._low, self._high = Saving(), Saving()
        self._untried: dict[str, None] = {}
        self._left_out: dict[str, str] = {}
        self._with_bodies = 0
        self.rules = UsedRules()

    def add(self, prediction: SessionPrediction, findings: tuple[Finding, ...]) -> None:
        """Add one session."""
        self._sessions += 1
        self._calls += prediction.compared
        self._exact += prediction.exact
        self._writes += prediction.exact_writes
        self._error += prediction.error_tokens
        self._unexplained += prediction.unexplained_tokens
        self._surplus += prediction.surplus_tokens
        if prediction.compared:
            mode = prediction.mode
            self._modes[mode] = self._modes.get(mode, 0) + prediction.compared
        for reason, count in prediction.refused.items():
            self._refused[reason] = self._refused.get(reason, 0) + count
        self._change += prediction.change
        self._difference += prediction.difference
        for name, change in prediction.scenarios.items():
            self._scenarios[name] = self._scenarios.get(name, Change()) + change
            self._known[name] = self._known.get(name, 0) + 1
        if prediction.low is None or prediction.high is None:
            self._untried[prediction.untried or _UNTRIED] = None
        else:
            self._low += prediction.low
            self._high += prediction.high
        self.rules.add(prediction.mode, prediction.rules)
        self._with_bodies += prediction.mode == "bodies"
        by_id = {finding.id: finding for finding in findings}
        for name, reason in prediction.left_out.items():
            found = by_id.get(name)
            if found is not None:
                self._left_out.setdefault(found.name, reason)
        for step in prediction.steps:
            self._gather(step, by_id.get(step.finding), prediction)

    def _gather(
        self, step: FixStep, finding: Finding | None, prediction: SessionPrediction
    ) -> None:
        rule = step.finding.partition(":")[0] if finding is None else finding.rule
        edit = prediction.edits.get(step.finding)
        key = f"{rule} {edit or ''}"
        gathered = self._steps.get(key)
        if gathered is None:
            title = None if finding is None or finding.fix is None else finding.fix.title
            gathered = self._steps[key] = _Gathered(rule, edit, title)
        gathered.add(step, prediction)

    def simulation(self) -> Simulation:
        """How well predictions and reports agree."""
        if not self._sessions:
            return Simulation()
        mean = round(self._error / self._calls, 1) if self._calls else None
        return Simulation(
            exact_calls=self._exact,
            calls=self._calls,
            mean_abs_error_tokens=mean,
            unexplained_tokens=self._unexplained,
            exact_writes=self._writes,
            surplus_tokens=self._surplus,
            refused=dict(sorted(self._refused.items())),
            modes=self._modes,
            switches=self._switches.in_force(),
            disputed=switch_rows(self._switches),
            assumed=self.rules.assumed(),
        )

    def what_if(
        self,
        totals: Totals,
        commands: Commands | None = None,
        unjudged: Mapping[str, int] | None = None,
    ) -> WhatIf:
        """What the fixes would make of the bill.

        Args:
            totals: Of all calls of the audit; what could not be simulated stays as it was billed.
            commands: Writes the command lines that work settings out again; without it there are
                none.
            unjudged: Calls that a backtest leaves out, by reason.
        """
        if not totals.calls or totals.input_equivalents is None:
            return WhatIf(reason="the input of these calls is not known in all its parts")
        reported = _reported(totals)
        whole = totals.total_input
        title = "As it was, simulated" if self._with_bodies else "As it was billed"
        before = _plus(reported, self._difference, "baseline", title, whole)
        every = msgspec.structs.replace(
            _plus(before, self._change, "all-fixes", "All fixes together", whole),
            left_out=self._left_out,
            command=self._every_command(commands),
        )
        is_priced = before.cost is not None
        gathered = sorted(self._steps.values(), key=lambda item: -item.change.saves.rank)
        return WhatIf(
            all_fixes=every,
            scenarios=[
                msgspec.structs.replace(
                    _plus(before, self._scenarios[name], name, TITLES[name], whole),
                    command=self._command(name, commands),
                    unjudged={} if self._with_bodies else dict(sorted((unjudged or {}).items())),
                )
                for name in _ORDER
                if name in self._scenarios and self._is_told(name)
            ],
            reported=reported,
            baseline=before,
            waterfall=[item.step() for item in gathered],
            low=None if self._untried else _end(self._low, is_priced),
            high=None if self._untried else _end(self._high, is_priced),
            reason="; ".join(self._untried) or None,
        )

    def _command(self, name: str, commands: Commands | None) -> str | None:
        """Write the command line whose figures are those of a setting; ``None``: there is none."""
        if commands is None:
            return None
        if not self._with_bodies:
            policy = POLICIES.get(name)
            return None if policy is None else commands.backtest(policy)
        edit = EDITS.get(name)
        return None if edit is None or not self._is_one else commands.simulate([edit])

    def _every_command(self, commands: Commands | None) -> str | None:
        edits = [step.edit for step in self._steps.values()]
        known = [edit for edit in edits if edit is not None]
        if commands is None or not known or len(known) < len(edits):
            return None
        if self._left_out or not self._is_one:
            return None
        return commands.simulate(known)

    @property
    def _is_one(self) -> bool:
        """Whether it is one session with requests: ``simulate`` joins the caches of several."""
        return self._sessions == self._with_bodies == 1

    def _is_told(self, name: str) -> bool:
        return name not in _WHOLE or self._known[name] == self._sessions


class _Gathered:
    """One fix over all sessions."""

    def __init__(self, rule: str, edit: str | None, title: str | None) -> None:
        self._rule = rule
        self.edit = edit
        self._title = title
        self._alone = Saving()
        self._ids: list[str] = []
        self.change = Change()

    def add(self, step: FixStep, prediction: SessionPrediction) -> None:
        """Add one session's step."""
        self.change += step.change
        self._alone += prediction.saves.get(step.finding, step.change.saves)
        if len(self._ids) < _MOST_IDS:
            self._ids.extend(step.findings[: _MOST_IDS - len(self._ids)])

    def step(self) -> Step:
        """Write the step."""
        rule = find_rule(self._rule)
        title = self._title or (self._rule if rule is None else rule.title)
        return Step(
            name=self._rule if self.edit is None else self.edit.partition(":")[0],
            title=title,
            saves=saving_row(self.change.saves),
            alone=saving_row(self._alone),
            findings=self._ids,
            edit=self.edit,
        )


def saving_row(saving: Saving) -> SavingRow:
    """Write a saving."""
    return SavingRow(_text(saving.input_equivalents), _text(saving.cost))


def _end(saving: Saving, is_priced: bool) -> SavingRow:
    return saving_row(saving if is_priced else Saving(saving.input_equivalents, None))


def _text(value: Decimal | None) -> str | None:
    return None if value is None else plain(value)


def _reported(totals: Totals) -> Scenario:
    writes = [count for count in totals.cache_write.values() if count is not None]
    return Scenario(
        name="reported",
        title="As it was billed",
        calls=totals.calls,
        uncached_input=totals.uncached_input,
        cache_read=totals.cache_read,
        cache_write=sum(writes) if writes else None,
        hit_ratio=totals.hit_ratio,
        input_equivalents=totals.input_equivalents,
        cost=totals.cost.computed,
        unknown_calls=totals.unknown_calls,
    )


def _plus(
    base: Scenario, change: Change, name: str, title: str, whole: int | None = None
) -> Scenario:
    """Apply a change to a bill; ``whole`` is its input, where its parts do not add up to it."""
    uncached = _add(base.uncached_input, change.uncached_input)
    read = _add(base.cache_read, change.cache_read)
    write = _add(base.cache_write, change.cache_write)
    if uncached is not None and read is not None and write is not None:
        total: int | None = uncached + read + write
    else:
        total = _add(whole, change.uncached_input + change.cache_read + change.cache_write)
    saves = change.saves
    if base.cost is None:
        saves = Saving(saves.input_equivalents, None)
    return Scenario(
        name=name,
        title=title,
        calls=_add(base.calls, change.calls),
        uncached_input=uncached,
        cache_read=read,
        cache_write=write,
        hit_ratio=None if not total or read is None else round(read / total, 6),
        input_equivalents=_less(base.input_equivalents, saves.input_equivalents),
        cost=_less(base.cost, saves.cost),
        saves=saving_row(saves),
        added_calls=change.calls,
        own_costs=saving_row(change.own) if change.calls else None,
        unknown_calls=base.unknown_calls,
    )


def _add(value: int | None, more: int) -> int | None:
    return None if value is None else value + more


def _less(value: str | None, saves: Decimal | None) -> str | None:
    return None if value is None or saves is None else plain(decimal(value) - saves)
