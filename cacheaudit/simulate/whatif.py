"""What edits would have saved: alone, together, and one after another.

Everything is measured against the simulated session, not against the report: both bills then rest
on the same rules, and where the simulation differs from the report, that difference is stated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from cacheaudit.model.call import Call, Session
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.simulate.bill import Bill, Biller, Saving
from cacheaudit.simulate.build import Builder, Built, in_order
from cacheaudit.simulate.edit import Edit, EditRefused
from cacheaudit.simulate.run import Player, SimCall, usage_of
from cacheaudit.simulate.sizing import sized
from cacheaudit.simulate.sketch import sketched
from cacheaudit.simulate.switches import Switches
from cacheaudit.simulate.waterfall import Waterfall, waterfall

_SERIES = "~keep"


class OwnCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit itself costs; contained in what it saves.

    Attributes:
        added_calls: Calls that were not in the record: refreshes, summaries, retries.
        added: What they cost.
        longer_writes: What writes cost more than at five minutes' lifetime, beyond the baseline's.
    """

    added_calls: int = 0
    added: Saving = Saving()
    longer_writes: Saving = Saving()


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One set of edits, simulated.

    Attributes:
        name: Name of the edit, or of the set.
        title: One line.
        bill: What it would have cost; ``None`` where it was refused.
        saves: Against the simulated baseline.
        own_costs: What the edit itself costs.
        refused: Why it cannot be said.
        left_out: Edits of the set that do not go with the others, with the reason.
        calls: The calls as simulated, in order of start.
        outcomes: What the cache did with each of them.
    """

    name: str
    title: str
    bill: Bill | None = None
    saves: Saving = Saving(None, None)
    own_costs: OwnCosts = OwnCosts()
    refused: str | None = None
    left_out: dict[str, str] = {}
    calls: tuple[Call, ...] = ()
    outcomes: tuple[SimCall, ...] = ()


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """What edits would have saved.

    Attributes:
        reported: What was billed, by the record.
        baseline: The same calls, simulated without any edit.
        alone: Each edit by itself, in the order given.
        together: All edits that are possible, at once.
        steps: The same as steps that add up exactly.
        scenarios: Whole settings, for comparison; not part of ``together``.
        simulated: Calls that could be simulated.
        refused: Why the others could not, with how many.
        exact: Calls whose simulated read equals the reported one.
    """

    reported: Bill
    baseline: Bill
    alone: tuple[Trial, ...]
    together: Trial
    steps: Waterfall
    scenarios: tuple[Trial, ...] = ()
    simulated: int = 0
    refused: dict[str, int] = {}
    exact: int = 0

    @property
    def difference(self) -> Saving:
        """Reported less simulated."""
        return self.reported.less(self.baseline)


@runtime_checkable
class _Priced(Protocol):
    def priced(self, book: PriceBook | None) -> Edit:
        """Return the edit with prices to judge by."""
        ...


def evaluate(
    calls: Session | Iterable[Session] | Iterable[Call],
    edits: Sequence[Edit],
    book: PriceBook | None = None,
    switches: Switches | None = None,
    scenarios: Sequence[Edit] = (),
) -> WhatIf:
    """Simulate calls as they were and as edits would have made them.

    Args:
        calls: A session, several, or calls.
        edits: What to change.
        book: Prices; without them sums are input equivalents.
        switches: Disputed rules.
        scenarios: Settings to show beside the edits.
    """
    return evaluate_in(Lab(calls, book, switches), edits, scenarios)


def evaluate_in(lab: Lab, edits: Sequence[Edit], scenarios: Sequence[Edit] = ()) -> WhatIf:
    """Simulate edits of a session that is already set up; see :func:`evaluate`."""
    edits = [lab.priced(edit) for edit in edits]
    base = lab.baseline
    alone = tuple(lab.alone(edit) for edit in edits)
    possible = [n for n, trial in enumerate(alone) if trial.bill is not None]
    chosen = [edits[n] for n in possible]
    trials: dict[frozenset[int], Trial] = {frozenset(): base}
    trials |= {frozenset({n}): alone[index] for n, index in enumerate(possible)}

    def trial_of(wanted: frozenset[int]) -> Trial:
        if wanted not in trials:
            trials[wanted] = lab.together([chosen[n] for n in sorted(wanted)])
        return trials[wanted]

    def bill_of(wanted: frozenset[int]) -> Bill:
        return _bill(trial_of(wanted))

    steps = waterfall(_bill(base), [alone[n].saves for n in possible], bill_of)
    every = trial_of(frozenset(range(len(chosen))))
    return WhatIf(
        reported=lab.reported,
        baseline=_bill(base),
        alone=alone,
        together=msgspec.structs.replace(every, name="all-fixes", title="All fixes together"),
        steps=msgspec.structs.replace(
            steps,
            steps=tuple(
                msgspec.structs.replace(step, index=possible[step.index]) for step in steps.steps
            ),
        ),
        scenarios=(*lab.bounds(), *(lab.alone(lab.priced(edit)) for edit in scenarios)),
        simulated=sum(row.predicted is not None for row in base.outcomes),
        refused=_count(row.refused for row in base.outcomes if row.refused is not None),
        exact=sum(row.exact for row in base.outcomes),
    )


class Lab:
    """One session under test: its baseline, and any edits of it.

    Args:
        calls: A session, several, or calls; without any body their requests are sketched.
        book: Prices.
        switches: Disputed rules.

    Attributes:
        calls: The calls as recorded, in order of start, sizes settled.
        baseline: The same, simulated.
        reported: What they were billed.
        work: Calls simulated so far, those of every trial counted.
        switches: Disputed rules in force.
    """

    def __init__(
        self,
        calls: Session | Iterable[Session] | Iterable[Call],
        book: PriceBook | None = None,
        switches: Switches | None = None,
    ) -> None:
        self.switches = switches or Switches()
        self._book = book
        self._biller = Biller(book)
        ordered = in_order(calls)
        if not any(call.prompt is not None for call in ordered):
            ordered = sketched(ordered)
        self.calls = sized(ordered, self.switches)
        self._ids = {call.id for call in self.calls}
        self._before: Trial | None = None
        self._longer = Saving()
        self.work = 0
        self._tried: list[tuple[Edit, Trial]] = []
        self.baseline = self._trial("baseline", "As it was", self.calls)
        self._longer = self._longer_writes(self.baseline)
        self._before = self.baseline
        self._refused_before = {
            row.id
            for row in self.baseline.outcomes
            if row.predicted is not None and row.predicted.refused is not None
        }
        self.reported = self._biller.bill(self.calls, [call.usage for call in self.calls])

    def priced(self, edit: Edit) -> Edit:
        """Give an edit that weighs costs the prices to do so."""
        return edit.priced(self._book) if isinstance(edit, _Priced) else edit

    def alone(self, edit: Edit) -> Trial:
        """Simulate one edit; where it is refused, the trial says why."""
        known = next((trial for mine, trial in self._tried if mine == edit), None)
        if known is None:
            known = self._alone(edit)
            self._tried.append((edit, known))
        return known

    def _alone(self, edit: Edit) -> Trial:
        try:
            changed = edit.apply(self.calls)
        except EditRefused as reason:
            return Trial(name=edit.name, title=edit.title, refused=str(reason))
        return self._checked(edit.name, edit.title, changed, {})

    def together(self, edits: Iterable[Edit]) -> Trial:
        """Simulate several edits at once, in order of their stage."""
        changed: Sequence[Call] = self.calls
        left_out: dict[str, str] = {}
        for edit in sorted(edits, key=lambda edit: edit.stage):
            try:
                changed = edit.apply(changed)
            except EditRefused as reason:
                left_out[edit.name] = str(reason)
        return self._checked("set", "Several edits", changed, left_out)

    def sum_of(self, trial: Trial, calls: Collection[str]) -> Saving:
        """What some calls of a trial cost."""
        found = Saving()
        for call, row in zip(trial.calls, trial.outcomes, strict=True):
            usage = _usage(row)
            if usage is not None and call.id in calls:
                found += self._biller.price(call, usage).amounts
        return found

    def bounds(self) -> tuple[Trial, ...]:
        """What no caching and what ideal caching would have cost."""
        from cacheaudit.simulate.bounds import ideal, without_cache

        rows = self.baseline.outcomes
        builder = Builder(self.switches)
        built = [builder.build(call) if call.prompt is not None else None for call in self.calls]
        requests = [item.request if isinstance(item, Built) else None for item in built]
        return (
            self._bound("no-caching", "No caching at all", without_cache(rows)),
            self._bound(
                "ideal",
                "Every repeated token read, nothing written in vain",
                ideal(requests, self._usual_ttl()),
            ),
        )

    def _usual_ttl(self) -> str:
        writes = _bill(self.baseline).cache_writes
        return max(writes, key=writes.__getitem__, default="5m")

    def _bound(self, name: str, title: str, outcomes: Sequence[Any]) -> Trial:
        rows = tuple(
            row if outcome is None else msgspec.structs.replace(row, predicted=outcome)
            for row, outcome in zip(self.baseline.outcomes, outcomes, strict=True)
        )
        return self._billed(name, title, self.calls, rows, {})

    def _checked(
        self, name: str, title: str, calls: Sequence[Call], left_out: dict[str, str]
    ) -> Trial:
        """Simulate; refreshes that read nothing end their series; refused requests refuse all."""
        trial = self._trial(name, title, calls, left_out)
        while failed := _failed_series(trial, self._ids):
            kept = [call for call in trial.calls if not _is_behind(call, failed)]
            if len(kept) == len(trial.calls):
                break
            trial = self._trial(name, title, kept, left_out)
        for row in trial.outcomes:
            outcome = row.predicted
            if outcome is not None and outcome.refused and row.id not in self._refused_before:
                reason = f"{row.id} would be refused: {outcome.refused}"
                return Trial(name=name, title=title, refused=reason, left_out=left_out)
        return trial

    def _trial(
        self, name: str, title: str, calls: Sequence[Call], left_out: dict[str, str] | None = None
    ) -> Trial:
        ordered = in_order(calls)
        self.work += len(ordered)
        player = Player(self.switches)
        rows = tuple(player.play(call) for call in ordered)
        return self._billed(name, title, ordered, rows, left_out or {})

    def _billed(
        self,
        name: str,
        title: str,
        calls: Sequence[Call],
        rows: tuple[SimCall, ...],
        left_out: dict[str, str],
    ) -> Trial:
        usages = [_usage(row) for row in rows]
        bill = self._biller.bill(calls, usages)
        trial = Trial(
            name=name,
            title=title,
            bill=bill,
            saves=Saving(),
            left_out=left_out,
            calls=tuple(calls),
            outcomes=rows,
        )
        if self._before is None:
            return trial
        return msgspec.structs.replace(
            trial, saves=_bill(self._before).less(bill), own_costs=self._own_costs(trial)
        )

    def _own_costs(self, trial: Trial) -> OwnCosts:
        added, count = Saving(), 0
        for call, row in zip(trial.calls, trial.outcomes, strict=True):
            usage = _usage(row)
            if usage is not None and call.id not in self._ids:
                count += 1
                added += self._biller.price(call, usage).amounts
        longer = self._longer_writes(trial) - self._longer
        return OwnCosts(added_calls=count, added=added, longer_writes=longer)

    def _longer_writes(self, trial: Trial) -> Saving:
        """What one-hour writes cost more than five-minute ones would have."""
        longer = Saving()
        for call, row in zip(trial.calls, trial.outcomes, strict=True):
            usage = _usage(row)
            if usage is None or not usage.write_1h:
                continue
            short = msgspec.structs.replace(
                usage, write_1h=0, write_5m=(usage.write_5m or 0) + usage.write_1h
            )
            price = self._biller.price
            longer += price(call, usage).amounts - price(call, short).amounts
        return longer


def _bill(trial: Trial) -> Bill:
    if trial.bill is None:
        raise EditRefused(trial.refused or f"{trial.name} was refused")
    return trial.bill


def _usage(row: SimCall) -> Usage | None:
    """What a call consumed: as simulated, else as reported."""
    if row.predicted is None or row.predicted.refused is not None:
        return row.reported
    return usage_of(row.predicted, row.reported)


def _failed_series(trial: Trial, recorded: set[str]) -> dict[str, float]:
    """Find refreshes that read nothing: id of the request they repeat → moment of the first."""
    failed: dict[str, float] = {}
    for call, row in zip(trial.calls, trial.outcomes, strict=True):
        if call.id in recorded or call.purpose != "keep_alive" or row.predicted is None:
            continue
        if row.predicted.read == 0 and call.parent is not None and call.started_at is not None:
            failed.setdefault(call.parent, call.started_at)
    return failed


def _is_behind(call: Call, failed: dict[str, float]) -> bool:
    """Whether a refresh comes after one of its series that failed."""
    if _SERIES not in call.id or call.parent is None or call.started_at is None:
        return False
    return call.started_at > failed.get(call.parent, float("inf"))


def _count(reasons: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for reason in reasons:
        found[reason] = found.get(reason, 0) + 1
    return found
