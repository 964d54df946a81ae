"""Rule TTL105."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.ttl import Ttl

_AT_LEAST = 20_000


class OneHourWritesNotReadAgain(Rule):
    """A large part of the one-hour writes was not read again by its own conversation.

    ## Why it costs

    A one-hour write costs about twice an ordinary token. What is not read again would have been
    cheaper for five minutes, or without a marker.

    ## What it rests on

    For each call, how much of what it wrote the next call of its lane read. Tokens that another
    session read are not seen here, so the share is the most that it can be.

    ## When to ignore

    When sessions are short and others read what they leave.
    """

    id = "TTL105"
    name = "one-hour-writes-not-read-again"
    title = "Much of what was written for one hour was not read again"
    kind = "note"
    fix = Fix("Write for one hour only what is read again after a pause, such as tools and system")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Write much and leave."""
        return Script(ttl="1h").call(0, 0, 20_000).call(30, 20_000, 60_000).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Come back to it."""
        return (
            Script(ttl="1h")
            .call(0, 0, 20_000)
            .call(30, 20_000, 60_000)
            .call(60, 80_000, 500)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        lanes = [lane for lane in survey(ctx).lanes.values() if "1h" in lane.last_write]
        if not lanes:
            return
        written = sum(
            sums[0] for lane in lanes for (ttl, _, _), sums in lane.writes.items() if ttl == "1h"
        )
        unread = sum(lane.unread_1h + lane.last_1h for lane in lanes)
        if unread >= _AT_LEAST and unread * 10 >= written * 3:
            soon = sum(lane.soon_1h for lane in lanes)
            yield Draft(
                index=lanes[0].last_write["1h"],
                verdict="proved",
                established=(
                    (
                        f"{count(unread)} of {count(written)} tokens written for one hour "
                        f"({unread * 100 // written} %) were "
                        f"not read by the next call of their lane; {count(soon)} were read "
                        "within five minutes."
                    ),
                ),
                to_check=("Whether another session read them.",),
            )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return Ttl(ttl="5m")
