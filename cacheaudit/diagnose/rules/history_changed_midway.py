"""Rule PFX104."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.reach import MANY_NEW_TOKENS
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import (
    LOOKBACK,
    MIXED,
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

_RANK = 16
_STILL_MARKED = "Whether an old marker stands there, and so much was added that no newer one helps."


class HistoryChangedMidway(Rule):
    """The read stops exactly where an older prompt ended, although later calls had read more.

    ## Why it costs

    Everything behind that place is written again.

    ## What it rests on

    The read has exactly the size that an older call left in the cache, while calls after it had
    read everything. So what that call sent is still the same, and what was added in the calls
    behind it is not: pictures replaced by text, tool results trimmed, an interrupted message
    written anew. Bodies would show which.

    ## When to ignore

    When the conversation was rewound on purpose.
    """

    id = "PFX104"
    name = "history-changed-midway"
    title = "History changed behind an older prompt that still matches"
    fix = Fix("Send earlier messages back as they were; edit only what is newest")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Replace a picture of the third call by a text."""
        return (
            Script(ttl="1h")
            .call(0, 0, 83_834)
            .call(30, 83_834, 90_000)
            .call(60, 173_834, 58_000)
            .call(90, 83_834, 149_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave the picture in."""
        return (
            Script(ttl="1h")
            .call(0, 0, 83_834)
            .call(30, 83_834, 90_000)
            .call(60, 173_834, 58_000)
            .call(90, 231_834, 1_000)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if event.older is None or event.skipped_lost or event.switched is not None:
                continue
            if event.has_bodies or event.timing.overlaps:
                continue
            yield _draft(ctx, event, event.older)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _draft(ctx: Context, event: Event, older: int) -> Draft:
    before = ctx.session.calls[older].id
    is_large = event.explicit and event.growth >= MANY_NEW_TOKENS
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The read has exactly the size of an older prompt, behind which calls read in full.",
        established=(
            shortfall(event),
            (
                f"{count(event.read)} tokens are exactly what {before} left in the cache, so "
                "everything up to there still matches."
            ),
            expiry_line(event),
            *aftermath(event),
            *reason_lines(event),
        ),
        to_check=(
            f"What was appended right behind {before}: whether it was edited or replaced.",
            *((_STILL_MARKED,) if is_large else ()),
        ),
        rivals=(
            *((LOOKBACK,) if is_large else ()),
            SERVER,
            Rival("messages-changed", "A rewound conversation continues from an older prompt too."),
            MIXED,
        ),
    )
