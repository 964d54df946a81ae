"""Rule PFX205."""

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
from cacheaudit.simulate.edits.freeze_text import FreezeText


class CounterInPrefix(Rule):
    """A counter stands in the system prompt or in an early message and was written anew.

    It counts turns, tokens, or how much context is left.

    ## Why it costs

    It differs in every request by design, and everything behind it is new each time.

    ## What it rests on

    Recorded bodies: two versions of a text that differ in numbers and in nothing else. Proved where
    the tokens read are those that earlier requests had marked in front of it; otherwise consistent,
    and what disagrees is said.

    ## When to ignore

    Never; the number can stand in the newest message.

    ## References

    The provider's page on prompt caching: what changes belongs behind the last marker.
    """

    id = "PFX205"
    name = "counter-in-prefix"
    title = "A number that counts stands in the prefix"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("system-changed", "messages-changed")
    fix = Fix("Put the counter into the newest user message")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Tell the model in the system prompt how much context is left."""
        first = request("task", "answer", "go on", system="Context left: 87 %. You help with code.")
        second = request(
            "task",
            "answer",
            "go on",
            "more",
            "next",
            system="Context left: 81 %. You help with code.",
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Tell it in the newest message."""
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", "Context left: 81 %. Next")
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return FreezeText()


def _matches(diff: Diff) -> bool:
    return diff.is_text("system", "counter") or diff.is_text("messages", "counter")
