"""Rule TTL103."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.expiry import is_expired
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import LaneSurvey, survey
from cacheaudit.diagnose.wording import count
from cacheaudit.diagnose.worth import Swap
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.ttl import Ttl

_SHORT = 300
_HOUR = 3_600


class OneHourLifetimeWouldPay(Rule):
    """Pauses of five minutes to an hour cost more than dearer writes would have.

    ## Why it matters

    A one-hour write costs more than a five-minute one; in exchange, what was lost to pauses of up
    to an hour would have been read. Which sum is larger depends on the pauses and on the prices, so
    both are computed.

    ## What it rests on

    Recorded writes with a five-minute lifetime, and pauses that surely lie between five minutes and
    an hour with nothing read behind them. It assumes that nothing but the pause was the cause, and
    it is said only where the saving is positive at the prices in force.

    ## When to ignore

    When the pauses of this session are unusual: look at all sessions before you change a default.
    """

    id = "TTL103"
    name = "one-hour-lifetime-would-pay"
    title = "A lifetime of one hour would have cost less than five minutes"
    kind = "note"
    needs = ("usage", "start_times")
    fix = Fix(
        "Ask for the one-hour lifetime", patch='"cache_control": {"type": "ephemeral", "ttl": "1h"}'
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Come back every ten minutes."""
        return (
            Script()
            .call(0, 0, 60_000)
            .call(600, 0, 60_500)
            .call(1_200, 0, 61_000)
            .call(1_220, 61_000, 500)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Come back within five."""
        return (
            Script()
            .call(0, 0, 60_000)
            .call(200, 60_000, 500)
            .call(400, 60_500, 500)
            .call(420, 61_000, 500)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        lanes: dict[str, list[Event]] = {}
        for event in ctx.events:
            if (
                is_expired(event)
                and (event.timing.high or _HOUR + 1) <= _HOUR
                and event.timing.ttl == _SHORT
            ):
                lanes.setdefault(event.lane.name, []).append(event)
        for name, events in lanes.items():
            lane = survey(ctx).lanes[name]
            if "1h" not in lane.last_write and "5m" in lane.last_write:
                yield _draft(lane, events)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return Ttl()


def _draft(lane: LaneSurvey, events: list[Event]) -> Draft:
    lost = sum(event.lost for event in events)
    written = sum(sums[0] for (ttl, _, _), sums in lane.writes.items() if ttl == "5m")
    swaps = [Swap(event.index, event.lost, "5m", "read") for event in events]
    avoided = lost
    for (ttl, _, _), (tokens, index) in lane.writes.items():
        if ttl == "5m":
            # What would not have been written again needs no longer lifetime either.
            part = min(avoided, tokens)
            avoided -= part
            swaps.append(Swap(index, tokens - part, "5m", "1h"))
    return Draft(
        index=events[-1].index,
        verdict="consistent",
        established=(
            (
                f"Lane {lane.name}: {len(events)} pauses between five minutes and an hour cost "
                f"{count(lost)} "
                f"tokens that were written again, of {count(written)} tokens written in all."
            ),
        ),
        to_check=("Whether other sessions have such pauses: a default holds for all of them.",),
        also=tuple(event.call.id for event in events[:-1]),
        worth=tuple(swaps),
        must_pay=True,
    )
