"""Rule WST103."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.times import seconds_of
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_AT_LEAST = 3
_SOON = 60.0


class RetryStorm(Rule):
    """Several requests in a short time failed or were repeated.

    ## Why it costs

    A repeated request is paid again, and one that follows a failed write may find nothing to read.

    ## What it rests on

    Three calls or more within a minute that are recorded as failed or as a repetition.

    ## When to ignore

    When the provider had an outage.
    """

    id = "WST103"
    name = "retry-storm"
    title = "Requests failed and were sent again several times"
    kind = "note"
    needs = ("start_times",)
    fix = Fix("Wait longer before each further try, and give up after a few")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Try four times."""
        return _tries(4)

    @classmethod
    @override
    def good(cls) -> Session:
        """Try once."""
        return _tries(1)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        found = survey(ctx)
        marked = sorted({*found.failed, *found.retried})
        calls = ctx.session.calls
        for start, index in enumerate(marked):
            group = marked[start : start + _AT_LEAST]
            first, last = calls[index].at, calls[group[-1]].at
            if (
                len(group) == _AT_LEAST
                and first is not None
                and last is not None
                and last - first <= _SOON
            ):
                yield Draft(
                    index=index,
                    verdict="proved",
                    established=(
                        (
                            f"{len(marked)} calls failed or are repetitions; from "
                            f"{calls[index].id} on, {_AT_LEAST} of them within "
                            f"{seconds_of(last - first)}."
                        ),
                    ),
                    to_check=(
                        (
                            "Why they failed, and whether the client waits longer before each "
                            "further try."
                        ),
                    ),
                    also=tuple(calls[i].id for i in group[1:]),
                )
                return


def _tries(number: int) -> Session:
    session = Script().call(0, 0, 20_000).session()
    calls = tuple(
        msgspec.structs.replace(
            session.calls[0],
            id=f"call-{n + 1}",
            attempt=n,
            started_at=4.0 * n,
            usage=session.calls[0].usage if n == number - 1 else None,
        )
        for n in range(number)
    )
    return msgspec.structs.replace(session, calls=calls)
