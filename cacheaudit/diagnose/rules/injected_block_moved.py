"""Rule PFX210."""

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


class InjectedBlockMoved(Rule):
    """Text that the client injects stood in one message before and stands further back now.

    It may be a list of skills, a reminder, the contents of a memory file.

    ## Why it costs

    What stood behind it moves up, so that the whole conversation is new. It is typical of resumed
    sessions: what is not in the transcript is injected again, elsewhere.

    ## What it rests on

    Recorded bodies: the block itself is unchanged and stands further back. Proved where the tokens
    read are those that earlier requests had marked in front of it; otherwise consistent, and what
    disagrees is said.

    ## When to ignore

    When a session is resumed once.

    ## References

    anthropics/claude-code#43657.
    """

    id = "PFX210"
    name = "injected-block-moved"
    title = "A content block moved to another place of the conversation"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed",)
    fix = Fix("Store injected text with the message that it was sent in, and send it back there")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Inject the list of skills into the newest message instead."""
        first = request(["attachments", "list of skills", "task"], "answer", "go on")
        second = request(
            ["attachments", "task"], "answer", "go on", "more", ["next", "list of skills"]
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave it where it was."""
        opening = ["attachments", "list of skills", "task"]
        first = request(opening, "answer", "go on")
        second = request(opening, "answer", "go on", "more", "next")
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
    return diff.shape == "moved" and diff.change.level == "messages"
