"""Rule TTL104."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import LaneSurvey, survey
from cacheaudit.diagnose.wording import count
from cacheaudit.diagnose.worth import Swap
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.ttl import Ttl

# Fewer calls tell nothing of pauses.
_AT_LEAST = 4


class FiveMinuteLifetimeWouldDo(Rule):
    """Writes asked for an hour, but hardly any call came back later than five minutes.

    ## Why it matters

    Every token written for an hour costs more than one written for five minutes. That pays only
    where calls come back behind a pause between five minutes and an hour.

    ## What it rests on

    Recorded one-hour writes, and the recorded pauses. Calls that read behind more than five minutes
    are counted as if they had had to write everything again. It is said only where the saving is
    positive at the prices in force.

    ## When to ignore

    When the pauses of this session are unusual, or when a late return must be fast.
    """

    id = "TTL104"
    name = "five-minute-lifetime-would-do"
    title = "A lifetime of five minutes would have cost less than one hour"
    kind = "note"
    needs = ("usage", "start_times")
    fix = Fix(
        "Leave the lifetime out: five minutes are the default",
        patch='"cache_control": {"type": "ephemeral"}',
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Work without a pause."""
        return (
            Script(ttl="1h")
            .call(0, 0, 60_000)
            .call(30, 60_000, 9_000)
            .call(60, 69_000, 9_000)
            .call(90, 78_000, 2_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Come back after a quarter of an hour."""
        return (
            Script(ttl="1h")
            .call(0, 0, 60_000)
            .call(900, 60_000, 9_000)
            .call(1_800, 69_000, 9_000)
            .call(1_900, 78_000, 2_000)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for lane in survey(ctx).lanes.values():
            if "1h" not in lane.last_write or lane.calls < _AT_LEAST:
                continue
            if survey_lane_has_times(ctx, lane):
                yield _draft(lane)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return Ttl(ttl="5m")


def survey_lane_has_times(ctx: Context, lane: LaneSurvey) -> bool:
    """Whether pauses can be judged: a lane without start times has none that are known."""
    return ctx.session.calls[lane.last].start_bounds is not None


def _draft(lane: LaneSurvey) -> Draft:
    written = sum(sums[0] for (ttl, _, _), sums in lane.writes.items() if ttl == "1h")
    late = sum(read for _, read in lane.long_hits)
    swaps = [
        Swap(index, tokens, "1h", "5m")
        for (ttl, _, _), (tokens, index) in lane.writes.items()
        if ttl == "1h"
    ]
    swaps += [Swap(index, read, "read", "5m") for index, read in lane.long_hits]
    return Draft(
        index=lane.last,
        verdict="consistent",
        established=(
            (
                f"Lane {lane.name}: {count(written)} tokens were written for one hour; "
                f"{len(lane.long_hits)} of "
                f"{lane.calls} calls read behind a pause of more than five minutes, "
                f"{count(late)} tokens in all."
            ),
        ),
        to_check=("Whether other sessions have longer pauses: a default holds for all of them.",),
        worth=tuple(swaps),
        must_pay=True,
    )
