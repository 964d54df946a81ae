"""Rule PFX101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import FRONT_RANK, changed_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.model.call import Session
from cacheaudit.model.change import Change
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.freeze_text import FreezeText


class SystemChanged(Rule):
    """The system prompt is not the one of the request before.

    ## Why it costs

    The system prompt stands before every message. A clock, a working folder, a git status or a
    random id in it makes all messages new; only the tools can still be read.

    ## What it rests on

    Recorded bodies (proved, with path and byte), or the provider's `system_changed`.

    ## When to ignore

    When the change is wanted and happens once.
    """

    id = "PFX101"
    name = "system-changed"
    title = "The system prompt changed"
    needs = ("usage", "requests")
    looks_at = ("bodies", "reasons")
    provider_reasons = ("system_changed",)
    fix = Fix("Keep the system prompt fixed; put what varies into the newest user message")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Give the model another part in mid-conversation."""
        first = request("task", "answer", "go on", system="You write code.")
        second = request("task", "answer", "go on", "more", "next", system="You review code.")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Tell it in the newest message."""
        first = request("task", "answer", "go on", system="You write code.")
        second = request(
            "task", "answer", "go on", "more", "Review it now", system="You write code."
        )
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from changed_drafts(ctx, self.provider_reasons, _is_system, FRONT_RANK, _title)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        place = finding.first_change
        return None if place is None else FreezeText(level="system")


def _is_system(diff: Diff) -> bool:
    is_system = diff.change.level == "system" and diff.change.kind != "parameter"
    # A line that the client writes for its own provider has a rule of its own.
    return is_system and diff.header != "alone"


def _title(change: Change) -> str:
    return f"The system prompt changed: {change.path}, {change.kind.replace('_', ' ')}"
