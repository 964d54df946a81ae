"""Rule WST107."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session

_AT_LEAST = 3
_TOKENS = 50_000


class LongContentWrittenAgain(Rule):
    """Old content is not read, and much of what is written had been written before.

    ## Why it costs

    Reading old content and writing what is new is how a cache works. Here a large part of all
    writes is old content, each time at the price of a write.

    ## What it rests on

    At least three calls of a lane lost cached tokens, and together these are three tenths or more
    of all that the lane wrote. What took them is told call by call in the other findings.

    ## When to ignore

    When the causes named there are wanted.
    """

    id = "WST107"
    name = "long-content-written-again"
    title = "The same long content is written again and again"
    kind = "note"

    @classmethod
    @override
    def bad(cls) -> Session:
        """Write everything three times."""
        return (
            Script()
            .call(0, 0, 60_000)
            .call(30, 0, 61_000)
            .call(60, 0, 62_000)
            .call(90, 0, 63_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Read it."""
        return (
            Script()
            .call(0, 0, 60_000)
            .call(30, 60_000, 1_000)
            .call(60, 61_000, 1_000)
            .call(90, 62_000, 1_000)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        lanes: dict[str, list[Event]] = {}
        for event in ctx.events:
            if event.explicit and not event.boundaries:
                lanes.setdefault(event.lane.name, []).append(event)
        for name, events in lanes.items():
            lost = sum(event.lost for event in events)
            lane = survey(ctx).lanes[name]
            written = lane.written
            if len(events) >= _AT_LEAST and lost >= _TOKENS and lost * 10 >= written * 3:
                yield Draft(
                    index=events[0].index,
                    verdict="proved",
                    established=(
                        (
                            f"Lane {name}: {len(events)} calls sent {count(lost)} tokens again "
                            "that had been cached; the lane wrote "
                            f"{count(written)} in all, {lane.write_share} % of what writes and "
                            "reads cost."
                        ),
                    ),
                    to_check=(
                        "Whether something early in the prompt changed.",
                        "Whether a marker stands at the end of what stays the same.",
                        "Whether the entry written last is still within reach of the next marker.",
                    ),
                    also=tuple(event.call.id for event in events[1:]),
                )
