"""Rule DAT107."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.model.call import Session
from cacheaudit.model.plural import plural
from cacheaudit.model.usage import FLAG_OUTPUT_LOWER_BOUND

_LISTED = 50


class OutputIsLowerBound(Rule):
    """The record holds output counts from the beginning of responses.

    The true ones are larger.

    ## Why it is shown

    Cost of output is too small by an unknown amount. Input, and all that is said of the cache, is
    not affected.

    ## What it rests on

    The source marks such counts; some releases of a client wrote them into every line.

    ## When to ignore

    When only the cache matters.
    """

    id = "DAT107"
    name = "output-is-lower-bound"
    title = "Output counts are lower bounds"
    kind = "note"

    @classmethod
    @override
    def bad(cls) -> Session:
        """Record the first counts only."""
        return _flagged(
            Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Record the last ones."""
        return Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        found = survey(ctx).flagged.get(FLAG_OUTPUT_LOWER_BOUND, [])
        if found:
            yield Draft(
                index=found[0],
                verdict="proved",
                established=(
                    f"The output of {plural(len(found), 'call')} is known as a lower bound only.",
                ),
                also=_ids(ctx, found),
            )


def _flagged(session: Session) -> Session:
    calls = list(session.calls)
    usage = calls[1].usage
    if usage is not None:
        flagged = msgspec.structs.replace(usage, flags=(FLAG_OUTPUT_LOWER_BOUND,))
        calls[1] = msgspec.structs.replace(calls[1], usage=flagged)
    return msgspec.structs.replace(session, calls=tuple(calls))


def _ids(ctx: Context, positions: list[int]) -> tuple[str, ...]:
    return tuple(ctx.session.calls[index].id for index in positions[1:_LISTED])
