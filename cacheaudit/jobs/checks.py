"""Every rule of the catalogue and how it went: found, clear, not applicable, failed or off."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from cacheaudit.diagnose.rule import Rule, all_rules
from cacheaudit.jobs.needs import THINGS, holds, lacking
from cacheaudit.model.call import Call
from cacheaudit.model.finding import Finding
from cacheaudit.report.result import Check

_ABSENT: Final = {
    "usage": "no call has token counts",
    "requests": "no requests are recorded",
    "start_times": "no start times are recorded",
    "provider_reasons": "the provider gave no reason for a miss",
    "boundaries": "no compaction, resumption or branch is recorded",
}


class Recorded:
    """What any call of an audit holds of the things that rules need."""

    def __init__(self) -> None:
        self.absent = list(THINGS)

    def add(self, calls: Sequence[Call]) -> None:
        """Take in the calls of a session; only what was not yet seen is looked for."""
        if self.absent:
            self.absent = [name for name in self.absent if not holds(calls, name)]


def checks(
    findings: Iterable[Finding], absent: Sequence[str], rules: Collection[Rule] | None = None
) -> list[Check]:
    """Say how every rule went.

    Args:
        findings: Of all sessions.
        absent: What no call holds, of the things that rules need.
        rules: The rules that were run; all of them by default.
    """
    found: set[str] = set()
    failed: dict[str, str] = {}
    for finding in findings:
        if finding.kind == "error":
            failed.setdefault(finding.rule, " ".join(finding.established))
        else:
            found.add(finding.rule)
    ran = None if rules is None else {rule.id for rule in rules}
    return [
        _check(rule, found, failed, absent) if ran is None or rule.id in ran else _off(rule)
        for rule in all_rules()
    ]


def _off(rule: Rule) -> Check:
    return Check(
        rule=rule.id, name=rule.name, title=rule.title, state="off", why="it was not selected"
    )


def _check(rule: Rule, found: set[str], failed: dict[str, str], absent: Sequence[str]) -> Check:
    state, why = "clear", None
    if rule.id in failed:
        state, why = "failed", failed[rule.id] or None
    elif rule.id in found:
        state = "found"
    elif missing := lacking(rule, absent):
        state, why = "not_applicable", "; ".join(_ABSENT[name] for name in missing)
    return Check(rule=rule.id, name=rule.name, title=rule.title, state=state, why=why)
