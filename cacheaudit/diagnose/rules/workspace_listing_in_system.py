"""Rule PFX204."""

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


class WorkspaceListingInSystem(Rule):
    """The working folder, a tree of files or the open tabs stand in the system prompt and changed.

    ## Why it costs

    A file that is created, opened or renamed makes another system prompt, and all messages behind
    it are new.

    ## What it rests on

    Recorded bodies: system texts that differ inside a section on folders or files. Proved where the
    tokens read are those that earlier requests had marked in front of it; otherwise consistent, and
    what disagrees is said.

    ## When to ignore

    When the folder changes once, early.

    ## References

    can1357/oh-my-pi#7324; anthropics/claude-code#47107.
    """

    id = "PFX204"
    name = "workspace-listing-in-system"
    title = "The system prompt holds the working folder or a list of files"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("system-changed",)
    fix = Fix("Send the list of files with the message that needs it, not in the system prompt")

    @classmethod
    @override
    def bad(cls) -> Session:
        """List the files anew for each request."""
        files = "You help with code.\nProject structure:\n- src/app.py"
        first = request("task", "answer", "go on", system=files)
        second = request("task", "answer", "go on", "more", "next", system=files + "\n- src/new.py")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """List them in the newest message."""
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", "Project structure:\n- src/new.py")
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
    return diff.is_text("system", "workspace")
