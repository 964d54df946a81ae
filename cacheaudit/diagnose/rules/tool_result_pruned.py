"""Rule PFX216."""

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
from cacheaudit.simulate.edits.append_only import AppendOnly


class ToolResultPruned(Rule):
    """A tool result of the history became much shorter: cut, cleared, or replaced by a note.

    ## Why it costs

    Everything behind it is written again. Clearing one old result with every turn writes the
    conversation every turn; what is saved is only the cleared text, at the rate of reads.

    ## What it rests on

    Recorded bodies: the same tool call with less than half of its content, or with a note that it
    was cleared. Proved where the tokens read are those that earlier requests had marked in front of
    it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    When a large part goes at once, rarely, or when nothing was cached any more.

    ## References

    The provider's page on context editing (`clear_at_least`); anthropics/claude-code#94177.
    """

    id = "PFX216"
    name = "tool-result-pruned"
    title = "The result of an earlier tool call was cut or cleared"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed", "history-rewritten")
    fix = Fix("Clear many results at once, when it frees far more than has to be written again")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Clear the old log."""
        log = "a long log of the build, line by line, with everything that happened in it"
        first = request("task", [use(1)], [result(1, log)], "so", "go on")
        second = request("task", [use(1)], [result(1, "[cleared]")], "so", "go on", "more", "next")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave it."""
        log = "a long log of the build, line by line, with everything that happened in it"
        first = request("task", [use(1)], [result(1, log)], "so", "go on")
        second = request("task", [use(1)], [result(1, log)], "so", "go on", "more", "next")
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
    return diff.shape == "result_pruned"
