"""What the provider's rules predict of a session, and what the fixes of its findings would save.

With bodies every fix is simulated: alone, and as steps that add up. From usage alone reads are
predicted from sizes and pauses, a fix saves what its finding lost, and lifetimes are tried on the
recorded pauses. The second way costs a few microseconds a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from cacheaudit.diagnose.mends import are_too_long
from cacheaudit.diagnose.runner import Diagnosis
from cacheaudit.jobs.fixes import fix_of
from cacheaudit.jobs.prediction import Change as Change
from cacheaudit.jobs.prediction import FixStep as FixStep
from cacheaudit.jobs.prediction import SessionPrediction as SessionPrediction
from cacheaudit.model.call import Call, Session
from cacheaudit.model.finding import Finding, Fix, Loss
from cacheaudit.model.money import ZERO
from cacheaudit.pricing.book import PriceBook
from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.bill import Bill, Saving
from cacheaudit.simulate.build import rules_of
from cacheaudit.simulate.lifetimes import Judge, Judged, UnderPolicy
from cacheaudit.simulate.policy import parse_policy
from cacheaudit.simulate.quick import NotQuick, Predicted, Quick, predict_sizes
from cacheaudit.simulate.switches import Switches

if TYPE_CHECKING:
    from cacheaudit.simulate.edit import Edit
    from cacheaudit.simulate.request import Outcome
    from cacheaudit.simulate.run import SimCall
    from cacheaudit.simulate.whatif import Lab, Trial, WhatIf

# Simulated calls that one session may cost, and all of them together. Beyond, only the dearest
# findings are simulated, and at last none: what is left is the prediction of the calls.
_SESSION_WORK: Final = 100_000
_USUAL: Final = Switches()
_WORK: Final = 1_000_000
_TOO_MUCH: Final = "too many calls to simulate every fix; audit the session by itself"
_NOT_TRIED: Final = "disputed rules can be tried on recorded requests only"
# What keeps a read short, the word that says most first.
_WHY: Final = ("expired", "not_yet_readable", "beyond_lookback", "no_marker")
_BELOW: Final = "below_minimum"
_LIFETIME: Final = "TTL"
_COMPACTION: Final = "CMP"
_LONG, _KNOWN, _REFRESHED, _NONE = range(4)
_POLICIES: Final = ("1h", "recorded+keep-alive-known", "5m+keep-alive", "none")
NO_CACHING, IDEAL, LONG, REFRESHED = "no-caching", "ideal", "one-hour", "keep-alive"
TITLES: Final[Mapping[str, str]] = {
    NO_CACHING: "No caching at all",
    IDEAL: "Every repeated token read, nothing written in vain",
    LONG: "One hour's lifetime everywhere",
    REFRESHED: "Refreshed before expiry, for half an hour after each request",
}
# The same as ``backtest --policy`` and ``simulate --edit`` take them.
POLICIES: Final[Mapping[str, str]] = {
    LONG: _POLICIES[_LONG],
    REFRESHED: _POLICIES[_REFRESHED],
    NO_CACHING: _POLICIES[_NONE],
}
EDITS: Final[Mapping[str, str]] = {LONG: "ttl", REFRESHED: "keep-alive:idle=yes"}


class Predictor:
    """Predicts session after session.

    Args:
        book: Prices.
        work: Calls that may be simulated to weigh fixes, over all sessions.
        switches: Disputed rules.
    """

    def __init__(
        self, book: PriceBook | None, work: int = _WORK, switches: Switches | None = None
    ) -> None:
        self._book = book
        self._switches = switches or Switches()
        self._work = work
        self._judge = Judge([parse_policy(text) for text in _POLICIES], book)

    @property
    def unjudged(self) -> Mapping[str, int]:
        """Calls whose lifetime could not be chosen, by reason: settings leave them as billed."""
        return self._judge.left_out

    def predict(self, session: Session, diagnosis: Diagnosis) -> SessionPrediction:
        """Predict the calls of a session and weigh the fixes of its findings."""
        if _has_bodies(session.calls):
            budget = min(_SESSION_WORK, self._work)
            from cacheaudit.simulate.whatif import Lab

            lab = Lab(session, self._book, self._switches)
            prediction, spent = _with_bodies(lab, session, diagnosis, self._book, budget)
            self._work -= min(self._work, spent)
            return prediction
        judged = self._judge.session(session)
        return _from_sizes(session, diagnosis, judged, self._switches)


def _has_bodies(calls: Iterable[Call]) -> bool:
    for call in calls:  # noqa: SIM110 - a third of the cost of `any`
        if call.prompt is not None:
            return True
    return False


def predict(
    session: Session, diagnosis: Diagnosis, book: PriceBook | None = None
) -> SessionPrediction:
    """Predict one session; for many, keep a :class:`Predictor`."""
    return Predictor(book).predict(session, diagnosis)


def with_savings(findings: Iterable[Finding], prediction: SessionPrediction) -> tuple[Finding, ...]:
    """Write into each finding's fix what it saves alone; what saves nothing is not advised."""
    found: list[Finding] = []
    paying = {name for s in prediction.steps if s.change.saves.rank > ZERO for name in s.findings}
    for finding in findings:
        saving = prediction.saves.get(finding.id)
        if finding.fix is None or saving is None or saving.input_equivalents is None:
            found.append(finding)
            continue
        if saving.rank <= ZERO and finding.id not in paying:
            found.append(msgspec.structs.replace(finding, fix=None, no_fix=_useless(finding)))
            continue
        alone = Loss(saving.input_equivalents, saving.cost)
        fix = Fix(finding.fix.title, finding.fix.patch, alone)
        found.append(msgspec.structs.replace(finding, fix=fix))
    return tuple(found)


def _useless(finding: Finding) -> str:
    """Say why nothing is advised."""
    if finding.rule.startswith(_LIFETIME):
        return (
            "No refresh and no other lifetime would have saved anything: over these pauses they "
            "cost at least as much as writing the prefix again."
        )
    title = "" if finding.fix is None else f" ({finding.fix.title.rstrip('.')})"
    return f"What is usually done{title} would have saved nothing on these calls."


# ── from usage alone ─────────────────────────────────────────────────────────────────────────────


def _from_sizes(
    session: Session, diagnosis: Diagnosis, judged: Judged, switches: Switches
) -> SessionPrediction:
    quick = _sizes(session, switches)
    calls = quick.calls
    compared = exact = writes = unexplained = surplus = 0
    for call in session.calls:
        usage = call.usage
        found = calls.get(call.id)
        if found is None or usage is None or usage.cache_read is None:
            continue
        off = found.read - usage.cache_read
        compared += 1
        if off:
            unexplained += max(0, off)
            surplus += max(0, -off)
        else:
            exact += 1
            writes += found.written == usage.cache_write
    unsaid = len(session.calls) - compared
    saves, steps = _fixes_by_size(diagnosis, judged)
    scenarios = {}
    if judged.calls:
        scenarios = {
            LONG: _under(judged, judged.policies[_LONG]),
            REFRESHED: _under(judged, judged.policies[_REFRESHED]),
            NO_CACHING: _under(judged, judged.policies[_NONE]),
            IDEAL: _under(judged, judged.ideal),
        }
    change = sum((step.change for step in steps), Change())
    return SessionPrediction(
        session=session.id,
        calls=calls,
        compared=compared,
        exact=exact,
        error_tokens=unexplained + surplus,
        exact_writes=writes,
        unexplained_tokens=unexplained,
        surplus_tokens=surplus,
        refused={"not_told_by_sizes": unsaid} if unsaid else {},
        saves=saves,
        steps=tuple(steps),
        change=change,
        scenarios=scenarios,
        low=None if steps else change.saves,
        high=None if steps else change.saves,
        untried=_NOT_TRIED if steps else None,
        rules=quick.rules,
    )


def _sizes(session: Session, switches: Switches) -> Quick:
    try:
        if switches != _USUAL:
            raise NotQuick
        return predict_sizes(_by_start(session.calls))
    except NotQuick:
        from cacheaudit.simulate.run import run

        found = run(session, switches=switches)
        return Quick(_predictions(found.calls), _rules(session.calls))


def _rules(calls: Iterable[Call]) -> tuple[Rules, ...]:
    """Collect the rules that the calls are simulated by."""
    from cacheaudit.simulate.sizes import Told, told_of

    found: dict[int, Rules] = {}
    for call in calls:
        rules = rules_of(call)
        if rules is None and call.prompt is None:
            told = told_of(call)  # what is not named is taken for what its counts look like
            rules = told.facts if isinstance(told, Told) else None
        if rules is not None:
            found[id(rules)] = rules
    return tuple(found.values())


def _by_start(calls: Sequence[Call]) -> Sequence[Call]:
    """Order calls by start, as the simulator does; most sessions already are."""
    starts = [call.at or 0.0 for call in calls]
    if starts == sorted(starts):
        return calls
    return [calls[n] for n in sorted(range(len(calls)), key=lambda n: (starts[n], n))]


def _predictions(rows: Iterable[SimCall]) -> dict[str, Predicted]:
    return {
        row.id: Predicted(outcome.read, outcome.written, outcome.uncached, _why(outcome))
        for row in rows
        if (outcome := row.predicted) is not None and outcome.refused is None
    }


def _why(outcome: Outcome) -> str | None:
    """Say why a call should not have read more; what only kept writes short is left out."""
    word = next((word for word in _WHY if word in outcome.notes), None)
    if word is None and _BELOW in outcome.notes and not (outcome.read or outcome.written):
        return _BELOW
    return word


def _fixes_by_size(diagnosis: Diagnosis, judged: Judged) -> tuple[dict[str, Saving], list[FixStep]]:
    """Take what each finding lost as what its fix saves; a pause is weighed with its own costs.

    Every lost token has one cause, so these savings add up.
    """
    saves: dict[str, Saving] = {}
    steps: list[FixStep] = []
    lifetimes: list[str] = []
    lifetime = Change()
    for finding in diagnosis.findings:
        if not _has_plain_saving(finding) or finding.lost is None:
            continue
        if finding.rule.startswith(_LIFETIME) and judged.calls:
            tried = [_under(judged, policy) for policy in judged.policies[: _KNOWN + 1]]
            change = max(tried, key=lambda change: change.saves.rank)
            saves[finding.id] = change.saves
            lifetimes.append(finding.id)
            lifetime = change
            continue
        change = _recovered(finding, finding.lost, judged)
        saves[finding.id] = change.saves
        steps.append(FixStep(finding.id, change, False, (finding.id,)))
    if lifetimes and lifetime.saves.rank > ZERO:
        # One setting mends them all: it is one step.
        steps.append(FixStep(lifetimes[0], lifetime, False, tuple(lifetimes)))
    steps.sort(key=lambda step: -step.change.saves.rank)
    return saves, steps


def _has_plain_saving(finding: Finding) -> bool:
    """Whether what was lost is what the fix saves: compaction, for one, is worth something too."""
    return _is_fixable(finding) and not finding.rule.startswith(_COMPACTION)


def _is_fixable(finding: Finding) -> bool:
    is_loss = finding.kind == "loss" and finding.lost is not None
    return is_loss and finding.fix is not None and finding.verdict != "unknown"


def _recovered(finding: Finding, lost: Loss, judged: Judged) -> Change:
    """Read what was lost instead of writing it, or of sending it where nothing is written."""
    tokens = finding.tokens_lost
    written = tokens if sum(judged.cache_writes.values()) >= tokens else 0
    return Change(
        cache_read=tokens,
        cache_write=-written,
        uncached_input=written - tokens,
        saves=Saving(lost.input_equivalents, lost.cost),
    )


def _under(judged: Judged, policy: UnderPolicy) -> Change:
    is_priced = judged.unpriced < judged.calls
    saves = policy.saves if is_priced else Saving(policy.saves.input_equivalents, None)
    return Change(
        calls=policy.refreshes,
        uncached_input=policy.uncached_input - judged.uncached_input,
        cache_read=policy.cache_read - judged.cache_read,
        cache_write=sum(policy.cache_writes.values()) - sum(judged.cache_writes.values()),
        saves=saves,
        own=policy.refresh_cost,
    )


# ── with bodies ──────────────────────────────────────────────────────────────────────────────────


def _with_bodies(
    lab: Lab, session: Session, diagnosis: Diagnosis, book: PriceBook | None, budget: int
) -> tuple[SessionPrediction, int]:
    """Simulate; also say how many calls that took."""
    from cacheaudit.jobs.spread import spread
    from cacheaudit.simulate.edits.keep_alive import KeepAlive
    from cacheaudit.simulate.edits.ttl import Ttl
    from cacheaudit.simulate.run import accuracy
    from cacheaudit.simulate.whatif import evaluate_in

    edits, owners, skipped, useless = _edits(lab, session, diagnosis.findings, budget)
    what_if = evaluate_in(lab, edits)
    saves, left_out = _alone(what_if, owners)
    saves |= dict.fromkeys(useless, Saving())
    for edit, names in zip(edits, owners, strict=True):
        if edit.name in what_if.together.left_out:
            left_out |= dict.fromkeys(names, what_if.together.left_out[edit.name])
    tried: dict[str, Trial] = {}
    if lab.work < budget:
        tried = {LONG: lab.alone(Ttl()), REFRESHED: lab.alone(lab.priced(KeepAlive(idle=True)))}
    tried |= {trial.name: trial for trial in what_if.scenarios}
    possible = [
        lab.priced(edit)
        for edit, trial in zip(edits, what_if.alone, strict=True)
        if trial.bill is not None
    ]
    ends = spread(lab, possible, what_if.together.saves, book, budget - lab.work)
    rows = lab.baseline.outcomes
    right = accuracy(rows)
    prediction = SessionPrediction(
        session=session.id,
        calls=_predictions(rows),
        compared=right.calls,
        exact=right.exact_calls,
        error_tokens=right.unexplained_tokens + right.surplus_tokens,
        exact_writes=right.exact_writes,
        unexplained_tokens=right.unexplained_tokens,
        surplus_tokens=right.surplus_tokens,
        refused=right.refused,
        mode="bodies",
        difference=_between(what_if.reported, what_if.baseline),
        edits=_texts(edits, owners),
        saves=saves,
        steps=_steps(what_if, owners),
        change=_changed(lab, what_if.together),
        scenarios={
            name: _changed(lab, trial) for name, trial in tried.items() if trial.bill is not None
        },
        left_out=left_out | dict.fromkeys(skipped, _TOO_MUCH),
        low=ends.low if what_if.reported.calls else Saving(),
        high=ends.high if what_if.reported.calls else Saving(),
        untried=ends.reason,
        rules=_rules(session.calls),
    )
    return prediction, lab.work + ends.work


def _edits(
    lab: Lab, session: Session, findings: Sequence[Finding], budget: int
) -> tuple[list[Edit], list[list[str]], list[str], list[str]]:
    """Collect the fixes that can be simulated, each once, with the findings that ask for it.

    Returns:
        Edits, ids of their findings, ids of the findings that were skipped, and of those over
        whose pauses nothing that was tried saves anything.
    """
    skipped: list[str] = []
    useless: list[str] = []
    edits: list[Edit] = []
    owners: list[list[str]] = []
    for finding in findings:
        if not _is_fixable(finding):
            continue
        if lab.work + len(session.calls) * (len(edits) + 2) > budget:
            skipped.append(finding.id)
            continue
        edit = fix_of(lab, session, finding, budget)
        if edit is None:
            is_pause = finding.rule.startswith(_LIFETIME) and lab.work < budget
            if is_pause and are_too_long(session, finding):
                useless.append(finding.id)
            continue
        if edit in edits:
            owners[edits.index(edit)].append(finding.id)
        else:
            edits.append(edit)
            owners.append([finding.id])
    return edits, owners, skipped, useless


def _alone(what_if: WhatIf, owners: list[list[str]]) -> tuple[dict[str, Saving], dict[str, str]]:
    saves: dict[str, Saving] = {}
    left_out: dict[str, str] = {}
    for trial, names in zip(what_if.alone, owners, strict=True):
        for name in names:
            if trial.bill is None:
                left_out[name] = trial.refused or ""
            else:
                saves[name] = trial.saves
    return saves, left_out


def _steps(what_if: WhatIf, owners: list[list[str]]) -> tuple[FixStep, ...]:
    steps: list[FixStep] = []
    before = what_if.steps.before
    for step in what_if.steps.steps:
        change = _between(before, step.after)
        names = owners[step.index]
        steps.append(FixStep(names[0], change, True, tuple(names)))
        before = step.after
    return tuple(steps)


def _changed(lab: Lab, trial: Trial) -> Change:
    before, after = lab.baseline.bill, trial.bill
    if before is None or after is None:
        return Change()
    return msgspec.structs.replace(_between(before, after), own=trial.own_costs.added)


def _texts(edits: list[Edit], owners: list[list[str]]) -> dict[str, str]:
    from cacheaudit.simulate.edit import edit_text

    return {
        name: edit_text(edit) for edit, names in zip(edits, owners, strict=True) for name in names
    }


def _between(before: Bill, after: Bill) -> Change:
    return Change(
        calls=after.calls - before.calls,
        uncached_input=after.uncached_input - before.uncached_input,
        cache_read=after.cache_read - before.cache_read,
        cache_write=after.cache_write - before.cache_write,
        saves=before.less(after) if before.calls or after.calls else Saving(),
    )
