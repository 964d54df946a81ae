"""Rule PFX201."""

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


class ClockInSystem(Rule):
    """A time stands in the system prompt and differs from request to request.

    It may be a time of day, or how long something took.

    ## Why it costs

    The system prompt stands before every message. With a clock in it that shows seconds or minutes
    no two requests share their messages, so that the whole conversation is written each time and
    never read.

    ## What it rests on

    Recorded bodies: two versions of a system text that differ in a time and in nothing else, or
    there first. Proved where the tokens read are those that earlier requests had marked in front of
    it; otherwise consistent, and what disagrees is said. A date alone is not reported here: it
    changes once a day.

    ## When to ignore

    When calls are a day apart anyway.

    ## References

    earendil-works/pi#1873; can1357/oh-my-pi#7324.
    """

    id = "PFX201"
    name = "clock-in-system"
    title = "The system prompt holds a clock"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("system-changed",)
    fix = Fix(
        "Take the time out of the system prompt, or give the day only; put it into the newest"
        " user message"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Write the time of day into the system prompt."""
        first = request("task", "answer", "go on", system="It is 10:15:02. You help with code.")
        second = request(
            "task", "answer", "go on", "more", "next", system="It is 10:15:37. You help with code."
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Write the day there, and the time into the newest message."""
        day = "Today is 2026-11-30. You help with code."
        first = request("task", "answer", "go on", system=day)
        second = request("task", "answer", "go on", "more", "It is 10:15:37. Next", system=day)
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
    return diff.is_text("system", "clock")
