"""Rule DAT106."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.wording import first_of
from cacheaudit.model.call import Session
from cacheaudit.model.plural import plural

_LISTED = 50


class ClockSkew(Rule):
    """Some calls seem to begin before the call before them did, or to end before they began.

    ## Why it is shown

    Whether a lifetime had passed is judged by these times. Where they run backwards, clocks differ
    or lines are out of order, and nothing is claimed from that gap.

    ## What it rests on

    Recorded times of one lane that run backwards by more than a second.

    ## When to ignore

    When the calls of the lane really ran side by side.
    """

    id = "DAT106"
    name = "clock-skew"
    title = "Times in the record run backwards"
    kind = "note"
    needs = ("usage", "start_times")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Let a clock jump back."""
        return _changed(
            Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session(),
            1,
            started_at=-400.0,
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Let it run."""
        return Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        found = sorted({index for lane in survey(ctx).lanes.values() for index in lane.skewed})
        if found:
            yield Draft(
                index=found[0],
                verdict="proved",
                established=(
                    (
                        f"{plural(len(found), 'call has', 'calls have')} times that run backwards"
                        f"{first_of(len(found), ctx.session.calls[found[0]].id)}."
                    ),
                ),
                to_check=("Whether the record joins machines with different clocks.",),
                also=_ids(ctx, found),
            )


def _changed(session: Session, index: int, **fields: Any) -> Session:
    calls = list(session.calls)
    calls[index] = msgspec.structs.replace(calls[index], **fields)
    return msgspec.structs.replace(session, calls=tuple(calls))


def _ids(ctx: Context, positions: list[int]) -> tuple[str, ...]:
    return tuple(ctx.session.calls[index].id for index in positions[1:_LISTED])
