"""Rule PFX206."""

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

# Other rules name these.
_NAMED = ("clock", "id", "counter", "representation")


class HistoryMessageEdited(Rule):
    """A message of the history was sent back with another text.

    The conversation goes on behind it as before.

    ## Why it costs

    Everything behind the edited message is the same text at the same place, and is written again
    all the same.

    ## What it rests on

    Recorded bodies: the text of one message differs while what stands behind it is sent again.
    Proved where the tokens read are those that earlier requests had marked in front of it;
    otherwise consistent, and what disagrees is said.

    ## When to ignore

    When the edit takes out a large part, so that the shorter prompt pays for the rewrite.

    ## References

    anthropics/claude-code#34629; the provider's page on prompt caching.
    """

    id = "PFX206"
    name = "history-message-edited"
    title = "An earlier message was edited"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed",)
    fix = Fix("Leave earlier messages as they were; say what changed in the newest one")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Shorten an answer of the history."""
        first = request("task", "first answer", "go on", "more", "next")
        second = request("task", "first answer, shortened", "go on", "more", "next", "done", "last")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave the history alone."""
        first = request("task", "first answer", "go on", "more", "next")
        second = request("task", "first answer", "go on", "more", "next", "done", "last")
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
    if diff.shape != "message_text":
        return False
    return diff.variation is None or diff.variation.kind not in _NAMED
