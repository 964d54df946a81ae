"""Rule PFX207."""

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


class HistoryTrimmedInFront(Rule):
    """The oldest messages were left out, as a sliding window does, and the rest moved up.

    ## Why it costs

    Every message behind the gap stands at another place of the prompt. A window that slides with
    each turn writes the whole conversation each turn and never reads it.

    ## What it rests on

    Recorded bodies: messages near the beginning are missing and the later ones follow unchanged.
    Proved where the tokens read are those that earlier requests had marked in front of it;
    otherwise consistent, and what disagrees is said.

    ## When to ignore

    When much is dropped at once and rarely: the shorter prompt then pays for the one rewrite.

    ## References

    The trimming pair of the recorded captures; facts on context editing: drop in batches, not per
    turn.
    """

    id = "PFX207"
    name = "history-trimmed-in-front"
    title = "Old messages were dropped from the front of the history"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed", "history-rewritten")
    fix = Fix("Drop many messages at once when the window is full, not some with every turn")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Keep the task and the last few messages only."""
        first = request("task", "one", "two", "three", "four", "five", "six")
        second = request("task", "three", "four", "five", "six", "seven", "eight")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep all of them."""
        first = request("task", "one", "two", "three", "four", "five", "six")
        second = request("task", "one", "two", "three", "four", "five", "six", "seven", "eight")
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
    return diff.shape == "trimmed"
