"""Rule PFX218."""

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


class BlockDroppedFromMessage(Rule):
    """A content block of an earlier message is missing while the rest of it is still there.

    It may be a reminder, an attachment, a note of the client.

    ## Why it costs

    Text that is meant for one turn only is sent once and then taken out; everything that was cached
    behind it is lost with it.

    ## What it rests on

    Recorded bodies: the message is there with fewer content blocks. Proved where the tokens read
    are those that earlier requests had marked in front of it; otherwise consistent, and what
    disagrees is said.

    ## When to ignore

    When nothing much stood behind it: text for one turn that is the last block of its request costs
    itself only.

    ## References

    The third pair of the recorded captures; anthropics/claude-code#43657.
    """

    id = "PFX218"
    name = "block-dropped-from-message"
    title = "Part of an earlier message was left out"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed",)
    fix = Fix("Leave reminders in the history, or put them behind the last marker of their request")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Take the reminder of an old turn out again."""
        first = request(
            "task", "answer", ["go on", "reminder: three files changed"], "more", "next"
        )
        second = request("task", "answer", ["go on"], "more", "next", "done", "last")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave it in."""
        old = ["go on", "reminder: three files changed"]
        first = request("task", "answer", old, "more", "next")
        second = request("task", "answer", old, "more", "next", "done", "last")
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
    return diff.shape == "block_dropped"
