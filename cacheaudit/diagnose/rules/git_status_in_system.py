"""Rule PFX203."""

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
from cacheaudit.simulate.edits.move_text import MoveText


class GitStatusInSystem(Rule):
    """The state of the repository stands in the system prompt and was taken anew.

    That is its status, its branch or the recent commits.

    ## Why it costs

    Every edit of a file makes another system prompt, and all messages behind it are new. Tools are
    still read where they have a marker of their own.

    ## What it rests on

    Recorded bodies: system texts that differ inside a section on git. Proved where the tokens read
    are those that earlier requests had marked in front of it; otherwise consistent, and what
    disagrees is said.

    ## When to ignore

    When the status is taken once a session and sessions do not share a prefix worth reading.

    ## References

    anthropics/claude-code#47107.
    """

    id = "PFX203"
    name = "git-status-in-system"
    title = "The system prompt holds a git status"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("system-changed",)
    fix = Fix(
        "Give the git status a content block of its own behind the last marker, or send it "
        "with the first user message"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Take the git status anew for each request."""
        status = "You help with code.\ngitStatus:\nOn branch main\n M app.py"
        first = request("task", "answer", "go on", system=status)
        second = request(
            "task", "answer", "go on", "more", "next", system=status + "\n M test_app.py"
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Take it once and leave it in the first message."""
        first = request("task\ngitStatus:\n M app.py", "answer", "go on")
        second = request("task\ngitStatus:\n M app.py", "answer", "go on", "more", "next")
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return MoveText()


def _matches(diff: Diff) -> bool:
    return diff.is_text("system", "git")
