"""Rule WST106."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import LaneSurvey, survey
from cacheaudit.diagnose.times import seconds_of
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_AT_LEAST = 10
_SLOW = 30.0


class SlowDespiteCache(Rule):
    """Nearly everything is read from the cache, and the calls take long all the same.

    ## Why it matters

    The cache shortens the wait for the first token only. Where generating the answer or running
    tools takes the time, caching more changes nothing.

    ## What it rests on

    A hit rate of nine tenths or more, with calls of half a minute or more on average. Where the
    first token is recorded, the wait is told apart from the generation; time between calls is the
    tools' and the user's.

    ## When to ignore

    When long answers are wanted.
    """

    id = "WST106"
    name = "slow-despite-cache"
    title = "The cache works, but the task is slow"
    kind = "note"
    needs = ("usage", "start_times")
    fix = Fix("Shorten what takes the time: answers, thinking, or tool runs")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Generate for a minute each time."""
        return _timed(60.0)

    @classmethod
    @override
    def good(cls) -> Session:
        """Answer briefly."""
        return _timed(4.0)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for lane in survey(ctx).lanes.values():
            if lane.timed < _AT_LEAST or lane.read * 10 < lane.total * 9:
                continue
            if lane.busy >= _SLOW * lane.timed:
                yield Draft(
                    index=lane.last,
                    verdict="proved",
                    established=(_line(ctx, lane), *_split(ctx, lane)),
                    to_check=(
                        (
                            "Which takes the time: the wait for the first token, the "
                            "generation, or the tools."
                        ),
                    ),
                )


def _line(ctx: Context, lane: LaneSurvey) -> str:
    first, last = ctx.session.calls[lane.first], ctx.session.calls[lane.last]
    whole = None if first.at is None or last.ended_at is None else last.ended_at - first.at
    line = (
        f"Lane {lane.name}: {lane.read * 100 // lane.total} % of the input was read, and "
        f"{lane.timed} calls took "
        f"{seconds_of(lane.busy / lane.timed)} on average"
    )
    if whole is None or whole < lane.busy:
        return f"{line}."
    return f"{line}; {seconds_of(whole - lane.busy)} lie between calls."


def _split(ctx: Context, lane: LaneSurvey) -> tuple[str, ...]:
    waits, rests = [], []
    for call in ctx.session.calls:
        start, first, end = call.started_at, call.first_token_at, call.ended_at
        if call.lane == lane.name and start is not None and first is not None and end is not None:
            waits.append(first - start)
            rests.append(end - first)
    if not waits:
        return ()
    wait, rest = sum(waits) / len(waits), sum(rests) / len(rests)
    longer = "the wait" if wait > rest else "the generation"
    return (
        (
            f"In {len(waits)} calls with a recorded first token, the wait took "
            f"{seconds_of(wait)} and the generation "
            f"{seconds_of(rest)} on average: {longer} is the larger part."
        ),
    )


def _timed(seconds: float) -> Session:
    script = Script(ttl="1h").call(0, 0, 40_000, duration=seconds)
    for number in range(14):
        script.call(70.0 * (number + 1), 40_000 + 500 * number, 500, duration=seconds)
    return script.session()
