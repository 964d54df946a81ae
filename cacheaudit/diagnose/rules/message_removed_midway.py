"""Rule PFX219."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.append_only import AppendOnly


class MessageRemovedMidway(Rule):
    """Whole messages are missing in the middle of the conversation.

    The later ones follow unchanged.

    ## Why it costs

    What stands behind the gap moves up and is written again.

    ## What it rests on

    Recorded bodies: messages are missing behind the beginning, the rest follows. Proved where the
    tokens read are those that earlier requests had marked in front of it; otherwise consistent, and
    what disagrees is said.

    ## When to ignore

    When what was taken out was large.

    ## References

    anthropics/claude-code#94177.
    """

    id = "PFX219"
    name = "message-removed-midway"
    title = "A message was taken out of the middle of the history"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed", "history-rewritten")
    fix = Fix("Leave old messages in, or take many out at once")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Take out two messages."""
        first = request("task", "one", "two", "three", "four", "five", "six", "seven", "eight")
        second = request("task", "one", "two", "three", "six", "seven", "eight", "nine", "ten")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave them in."""
        first = request("task", "one", "two", "three", "four", "five", "six")
        second = request("task", "one", "two", "three", "four", "five", "six", "seven", "eight")
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return AppendOnly()


def _matches(diff: Diff) -> bool:
    return diff.shape == "message_removed"
