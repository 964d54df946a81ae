"""Rule PFX217."""

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


class MessageInsertedMidway(Rule):
    """A message or a content block stands between messages that had been sent before.

    ## Why it costs

    Everything behind the insertion is the same text at another place, and is written again.

    ## What it rests on

    Recorded bodies: new content is followed by content that had stood there. Proved where the
    tokens read are those that earlier requests had marked in front of it; otherwise consistent, and
    what disagrees is said.

    ## When to ignore

    When it happens once, in a short conversation.

    ## References

    The splice pair of the recorded captures; anthropics/claude-code#92033.
    """

    id = "PFX217"
    name = "message-inserted-midway"
    title = "Something was inserted in the middle of the history"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed",)
    fix = Fix("Append what is new at the end of the conversation")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Insert a reminder into an old message."""
        first = request("task", "answer", "go on", "more", "next")
        second = request(
            "task", "answer", ["remember the style guide", "go on"], "more", "next", "done", "last"
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Append it to the newest."""
        first = request("task", "answer", "go on", "more", "next")
        second = request(
            "task", "answer", "go on", "more", "next", "done", ["last", "remember the style guide"]
        )
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
    return diff.shape == "inserted"
