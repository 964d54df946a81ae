"""Rule WST101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_AT_LEAST = 30_000


class WritesNotRead(Rule):
    """A large part of what was written was never read by a later call of the same conversation.

    ## Why it costs

    A write costs more than an ordinary token, and only reading pays it back. What is written once
    and never read was better sent without a marker.

    ## What it rests on

    For each call, how much of what it wrote the next call of its lane read; for the last call of a
    lane, whether another lane began with exactly its prompt. What another session read is not seen
    here, so the share is the most that it can be.

    ## When to ignore

    When sessions are short and others read what they leave.
    """

    id = "WST101"
    name = "writes-not-read"
    title = "Much of what was written to the cache was not read again"
    kind = "note"
    fix = Fix(
        "Leave the marker out of the last call of a conversation, and out of prompts that are "
        "sent once"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Write twice, read nothing of it."""
        return Script().call(0, 0, 30_000).call(30, 30_000, 40_000).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Read it."""
        return Script().call(0, 0, 30_000).call(30, 30_000, 40_000).call(60, 70_000, 500).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        lanes = survey(ctx).lanes.values()
        written = sum(lane.written for lane in lanes)
        unread = sum(
            lane.unread + (0 if _is_handed_on(ctx, lane.last) else lane.last_written)
            for lane in lanes
        )
        if unread >= _AT_LEAST and unread * 2 >= written:
            first = next(iter(lanes))
            yield Draft(
                index=first.last,
                verdict="proved",
                established=(
                    (
                        f"{count(unread)} of {count(written)} tokens written "
                        f"({unread * 100 // written} %) were read neither by the next call of "
                        "their lane nor by a lane that went on from there."
                    ),
                ),
                to_check=("Whether another session read them.",),
            )


def _is_handed_on(ctx: Context, last: int) -> bool:
    """Whether another lane began by reading exactly what a call left in the cache."""
    usage = ctx.session.calls[last].usage
    left = 0 if usage is None else (usage.cache_read or 0) + (usage.cache_write or 0)
    return left > 0 and any(o.index > last and o.read == left for o in ctx.openings)
