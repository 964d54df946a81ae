"""Rule PFX214."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request, result, thinking, use
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.freeze_text import FreezeText


class ThinkingBlockEdited(Rule):
    """A thinking block of the history was sent back with another text or another signature.

    ## Why it costs

    Everything behind it is new. Many APIs refuse it outright, since the signature no longer fits.

    ## What it rests on

    Recorded bodies: thinking stood there before and stands there now, but not the same. Proved
    where the tokens read are those that earlier requests had marked in front of it; otherwise
    consistent, and what disagrees is said.

    ## When to ignore

    Never.

    ## References

    The provider's page on thinking.
    """

    id = "PFX214"
    name = "thinking-block-edited"
    title = "Thinking of an earlier turn was changed"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed",)
    fix = Fix("Send thinking blocks back unchanged")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Empty the text of the thinking."""
        first = request("task", [thinking("a long thought"), use(1)], [result(1)], "so", "go on")
        second = request(
            "task", [thinking("", "s"), use(1)], [result(1)], "so", "go on", "more", "next"
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Send it back as it came."""
        thought = thinking("a long thought")
        first = request("task", [thought, use(1)], [result(1)], "so", "go on")
        second = request("task", [thought, use(1)], [result(1)], "so", "go on", "more", "next")
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return FreezeText(level="messages")


def _matches(diff: Diff) -> bool:
    return diff.shape == "thinking_edited"
