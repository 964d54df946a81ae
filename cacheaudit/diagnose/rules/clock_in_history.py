"""Rule PFX221."""

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


class ClockInHistory(Rule):
    """A time in an earlier message was written anew.

    It may stand in a preamble, an environment block, a memory file.

    ## Why it costs

    Everything behind it is new in every request, although nobody said anything new there.

    ## What it rests on

    Recorded bodies: two versions of an earlier message that differ in a time. Proved where the
    tokens read are those that earlier requests had marked in front of it; otherwise consistent, and
    what disagrees is said.

    ## When to ignore

    Never.

    ## References

    earendil-works/pi#1873; the provider's page on prompt caching.
    """

    id = "PFX221"
    name = "clock-in-history"
    title = "An earlier message holds a clock that was set anew"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed",)
    fix = Fix("Write the time once, when the message is new, and leave it")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Set the clock of the first message anew."""
        first = request(["It is 10:15:02.", "task"], "answer", "go on")
        second = request(["It is 10:15:37.", "task"], "answer", "go on", "more", "next")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave it, and write the time into the newest message."""
        first = request(["It is 10:15:02.", "task"], "answer", "go on")
        second = request(
            ["It is 10:15:02.", "task"], "answer", "go on", "more", ["It is 10:15:37.", "next"]
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
    return diff.is_text("messages", "clock")
