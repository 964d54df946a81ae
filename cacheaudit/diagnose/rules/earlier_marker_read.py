"""Rule PFX121."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import (
    SERVER,
    aftermath,
    count,
    expiry_line,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

_RANK = 21
# System prompts of a lane differ by less than that in size without another marker.
_MARGIN = 512


class EarlierMarkerRead(Rule):
    """The hit ended further in front than other short reads of this lane.

    ## Why it costs

    With several markers at the front, the first one can still match when a later part of the system
    prompt changed. All that follows is written again, the conversation included.

    ## What it rests on

    The read is smaller than another short read of the same lane with nothing in between that moved
    the front: both end before the conversation does, and the larger one shows where tools and
    system end. So a part of the system prompt differs, and not the messages alone.

    ## When to ignore

    When the change is wanted and happens once.
    """

    id = "PFX121"
    name = "earlier-marker-read"
    title = "The hit ended at an earlier marker than other misses of this session"
    fix = Fix("Keep the system prompt fixed; put what varies into the newest user message")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Change the last system block once."""
        return (
            Script()
            .call(0, 0, 30_000)
            .call(30, 18_000, 14_000, boundary="compaction")
            .call(60, 32_000, 9_000)
            .call(90, 14_600, 27_400)
            .call(120, 42_000, 900)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave it alone."""
        return (
            Script()
            .call(0, 0, 30_000)
            .call(30, 30_000, 2_000)
            .call(60, 32_000, 9_000)
            .call(90, 41_000, 1_000)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        largest: dict[str, int] = {}
        for event in ctx.events:
            lane = event.lane.name
            if event.read == 0 or event.switched is not None:
                # Tools changed, or another model: sizes of fronts do not compare across it.
                largest[lane] = 0
            elif event.is_floor and event.explicit and event.older is None:
                known = largest.get(lane, 0)
                if known - event.read > _MARGIN and not event.has_bodies and not event.boundaries:
                    yield _draft(event, known)
                largest[lane] = max(known, event.read)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _draft(event: Event, largest: int) -> Draft:
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The hit ends at an earlier marker than other short reads of the lane.",
        established=(
            shortfall(event),
            (
                f"Earlier misses of this lane still read {count(largest)} tokens: tools and "
                "system reach at least so far. This "
                f"hit ends {count(largest - event.read)} tokens before."
            ),
            expiry_line(event),
            *aftermath(event),
            *reason_lines(event),
        ),
        to_check=("Compare the system prompts of the two requests, the last block first.",),
        rivals=(
            Rival("system-changed", "A change in the last part of the system prompt."),
            Rival("parameter-changed", "A parameter that stands before the messages."),
            SERVER,
        ),
    )
