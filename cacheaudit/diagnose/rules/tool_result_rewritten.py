"""Rule PFX215."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request, result, use
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.freeze_text import FreezeText


class ToolResultRewritten(Rule):
    """A tool result of the history was sent back with another content.

    ## Why it costs

    Results are the largest part of most conversations. Rendering one anew - a file read again, a
    time added, an error reworded - makes everything behind it new.

    ## What it rests on

    Recorded bodies: the same tool call, another content. Proved where the tokens read are those
    that earlier requests had marked in front of it; otherwise consistent, and what disagrees is
    said.

    ## When to ignore

    When the old result was wrong and had to go.

    ## References

    anthropics/claude-code#94177; the provider's page on context editing.
    """

    id = "PFX215"
    name = "tool-result-rewritten"
    title = "The result of an earlier tool call was changed"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed",)
    fix = Fix("Leave results as they were sent; add a new result for what is new")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Run the tests again and replace the old result."""
        first = request("task", [use(1)], [result(1, "3 tests failed")], "so", "go on")
        second = request(
            "task", [use(1)], [result(1, "0 tests failed")], "so", "go on", "more", "next"
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Say in the newest message how they went."""
        first = request("task", [use(1)], [result(1, "3 tests failed")], "so", "go on")
        second = request(
            "task", [use(1)], [result(1, "3 tests failed")], "so", "go on", "more", "0 failed now"
        )
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
    return diff.shape == "result_rewritten"
