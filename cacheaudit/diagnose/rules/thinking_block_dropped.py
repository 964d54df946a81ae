"""Rule PFX213."""

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
from cacheaudit.simulate.edits.append_only import AppendOnly


class ThinkingBlockDropped(Rule):
    """A thinking block that had been sent is missing in the next request.

    ## Why it costs

    Models that keep thinking in the prompt see another conversation from there on. Older models
    drop it by themselves once a plain user message follows; then the client's dropping costs
    nothing more.

    ## What it rests on

    Recorded bodies: the block stood there and is gone. Proved where the tokens read are those that
    earlier requests had marked in front of it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    On models that keep the thinking of the last turn only.

    ## References

    The provider's pages on prompt caching and on thinking: blocks are to be passed back unchanged.
    """

    id = "PFX213"
    name = "thinking-block-dropped"
    title = "Thinking of an earlier turn was left out"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed",)
    fix = Fix("Send thinking blocks back unchanged; the API drops what it does not need")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Take the thinking out of the history."""
        first = request("task", [thinking("hm"), use(1)], [result(1)], "so", "go on")
        second = request("task", [use(1)], [result(1)], "so", "go on", "more", "next")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave it in."""
        first = request("task", [thinking("hm"), use(1)], [result(1)], "so", "go on")
        second = request(
            "task", [thinking("hm"), use(1)], [result(1)], "so", "go on", "more", "next"
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
    return diff.shape == "thinking_dropped"
