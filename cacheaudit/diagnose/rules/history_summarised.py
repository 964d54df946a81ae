"""Rule CMP201."""

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


class HistorySummarised(Rule):
    """Most messages are gone and a summary stands in their place.

    ## Why it costs

    The first request behind it writes the summary and what was kept; tools and system are read.
    Later requests are shorter. Since the summary is new text, the loss is an upper bound.

    ## What it rests on

    Recorded bodies: fewer than half of the messages, none of the old ones behind the first
    difference. Proved where the tokens read are those that earlier requests had marked in front of
    it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    Nearly always: late compaction pays. Look at it when it comes often, or early.

    ## References

    The compaction pair of the recorded captures; rossoctl/context-guru#234.
    """

    id = "CMP201"
    name = "history-summarised"
    title = "The history was replaced by a summary"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    is_trade = True
    supersedes = ("messages-changed", "history-rewritten")
    fix = Fix("Compact later, or where the cached content has expired anyway")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Summarise the conversation."""
        first = request("task", "one", "two", "three", "four", "five", "six", "seven", "eight")
        second = request("task", "Summary of the work so far.", "go on")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Go on without."""
        first = request("task", "one", "two", "three", "four", "five", "six", "seven", "eight")
        second = request(
            "task", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"
        )
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return AppendOnly(summaries=True)


def _matches(diff: Diff) -> bool:
    return diff.shape == "summarised"
