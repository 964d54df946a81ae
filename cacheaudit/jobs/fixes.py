"""Which edit stands for the fix of a finding.

A rule may name it. For the others, and where its own may turn out dear, the edits that mend their
kind of cause are tried, and the one that saves most is taken; it has to make the finding's own
calls cheaper, not only others. What is usually wanted, such as a compaction, is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cacheaudit.diagnose.rule import find_rule
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding
from cacheaudit.model.money import ZERO

if TYPE_CHECKING:
    from cacheaudit.simulate.edit import Edit
    from cacheaudit.simulate.whatif import Lab

_SETTINGS: Final = ("auto-tool-choice", "steady-settings")
_PAUSES: Final = ("keep-alive", "ttl")
_TEXT: Final = ("freeze-text", "move-text", "split-text")
_MARKERS: Final = ("mark-previous:over=15", "sliding-markers", "join-blocks", "mark")

# Families and rules whose own edit is weighed against others, or may save nothing.
_WEIGHED: Final = ("TTL", "RTE", "MDL101", "MDL211", "PFX220", "PFX222", "TOL101")
# Rule name → edits that mend such a cause; the general ones of a family stand last.
_CANDIDATES: Final[Mapping[str, tuple[str, ...]]] = {
    "tools-changed": ("late-tools", "sort-tools", "normalise", "freeze-text:level=tools"),
    "system-changed": _TEXT,
    "messages-changed": ("append-only", "freeze-text:level=messages"),
    "history-changed-midway": ("append-only", "freeze-text:level=messages"),
    "parameter-changed": _SETTINGS,
    "older-prefix-read": _SETTINGS,
    "messages-level-invalidation": _SETTINGS,
    "miss-reason-unavailable": _SETTINGS,
    "lookback-or-message-change": _MARKERS,
    "read-floor": _MARKERS,
    "concurrent-identical-writes": ("fan-out",),
    "nothing-cached": ("sliding-markers", "mark"),
    "prefix-lost-inside-ttl": ("late-tools", *_TEXT),
}
_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "PFX": (*_TEXT, "append-only", "normalise"),
    "TOL": ("late-tools", "sort-tools", "normalise", "freeze-text:level=tools"),
    "MDL": _SETTINGS,
    "BRK": _MARKERS,
    "TTL": _PAUSES,
    "RTE": ("fan-out", "one-route"),
}


def fix_of(lab: Lab, session: Session, finding: Finding, budget: int) -> Edit | None:
    """Find the edit that mends what a finding describes.

    Args:
        lab: The session, set up for simulation.
        session: The same session, as recorded.
        finding: A finding of it.
        budget: No further edit is tried once so many calls were simulated.

    Returns:
        ``None`` where no edit mends it or none saves anything.
    """
    from cacheaudit.simulate.edit import edit_types, parse_edit

    rule = find_rule(finding.rule)
    if rule is not None and rule.is_trade:
        return None
    own = None if rule is None else rule.fix_edit(session, finding)
    if own is not None and not finding.rule.startswith(_WEIGHED):
        return lab.priced(own)
    known = edit_types()
    texts = [text for text in _candidates(finding) if text.partition(":")[0] in known]
    before = lab.sum_of(lab.baseline, finding.calls)
    best: Edit | None = None
    most = ZERO
    for edit in ([own] if own is not None else []) + [parse_edit(text) for text in texts]:
        if lab.work >= budget:
            break
        edit = lab.priced(edit)
        trial = lab.alone(edit)
        if trial.bill is None or trial.saves.rank <= most:
            continue
        if before.rank > lab.sum_of(trial, finding.calls).rank:
            best, most = edit, trial.saves.rank
    return best


def _candidates(finding: Finding) -> tuple[str, ...]:
    return _CANDIDATES.get(finding.name) or _FAMILIES.get(finding.rule[:3], ())
