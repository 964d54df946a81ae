"""What the tests of the body rules share."""

from __future__ import annotations

from typing import Any

from cacheaudit.diagnose.runner import diagnose
from cacheaudit.diagnose.scenes import continued
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding

TALK = ("task", "answer", "go on", "more", "next", "done", "last")
FRONT = 2 * 1_500 + 4_000  # two tools and the system prompt


def losses(session: Session) -> list[Finding]:
    return [f for f in diagnose(session).findings if f.kind == "loss"]


def only(session: Session) -> Finding:
    (found,) = losses(session)
    return found


def pair(first: Any, second: Any, **scene: Any) -> Finding:
    return only(continued(first, second, **scene))


def shown(finding: Finding) -> tuple[str, str, str, str]:
    assert finding.first_change is not None
    change = finding.first_change
    return finding.name, finding.verdict, change.level, change.path
