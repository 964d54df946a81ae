"""Rule TTL106."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import LaneSurvey, survey
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.clock import iso

_BOTH = 2
_AT_LEAST = 5_000


class LifetimeChanged(Rule):
    """From one call on, writes have another lifetime than before.

    ## Why it matters

    The client program chooses the lifetime; an update, a plan or a setting changes it without a
    word, and pauses that were harmless then cost a whole prompt, or every write becomes dearer.

    ## What it rests on

    The recorded lifetimes of writes in one lane: none of the old one behind the change, none of the
    new one before it.

    ## When to ignore

    When the change was wanted.
    """

    id = "TTL106"
    name = "lifetime-changed"
    title = "Writes changed their lifetime from one call on"
    kind = "note"

    @classmethod
    @override
    def bad(cls) -> Session:
        """Lose the one-hour lifetime."""
        return (
            Script()
            .call(0, 0, 60_000, ttl="1h")
            .call(30, 60_000, 6_000, ttl="1h")
            .call(60, 66_000, 6_000)
            .call(90, 72_000, 6_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep it."""
        return (
            Script(ttl="1h")
            .call(0, 0, 60_000)
            .call(30, 60_000, 6_000)
            .call(60, 66_000, 6_000)
            .call(90, 72_000, 6_000)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for lane in survey(ctx).lanes.values():
            if len(lane.last_write) != _BOTH:
                continue
            for old, new in (("1h", "5m"), ("5m", "1h")):
                if lane.last_write[old] < lane.first_write[new] and _counts(lane):
                    yield _draft(ctx, lane, old, new)


def _sum(lane: LaneSurvey, lifetime: str) -> int:
    return sum(sums[0] for (ttl, _, _), sums in lane.writes.items() if ttl == lifetime)


def _counts(lane: LaneSurvey) -> bool:
    return min(_sum(lane, "5m"), _sum(lane, "1h")) >= _AT_LEAST


def _draft(ctx: Context, lane: LaneSurvey, old: str, new: str) -> Draft:
    calls = ctx.session.calls
    first = calls[lane.first_write[new]]
    when = "" if first.at is None or first.relative_time else f" ({iso(first.at)})"
    return Draft(
        index=lane.first_write[new],
        verdict="proved",
        title=f"Writes changed from {old} to {new}",
        established=(
            (
                f"Lane {lane.name}: {count(_sum(lane, old))} tokens were written with {old} up to "
                f"{calls[lane.last_write[old]].id}, {count(_sum(lane, new))} with {new} from "
                f"{first.id}{when} on."
            ),
        ),
        to_check=(
            "Whether the client program was updated, or a setting or plan changed, just before.",
        ),
        also=(calls[lane.last_write[old]].id,),
    )
