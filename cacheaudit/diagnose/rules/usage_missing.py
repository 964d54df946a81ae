"""Rule DAT104."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.model.call import Session
from cacheaudit.model.plural import plural

_LISTED = 50


class UsageMissing(Rule):
    """Some calls have no token counts, so that neither their cost nor their cache use is known.

    ## Why it is shown

    Totals leave them out, and the call behind them is compared with the last one whose counts are
    known.

    ## What it rests on

    No usage in the record, and no error that would explain it.

    ## When to ignore

    When they were interrupted before a response began.
    """

    id = "DAT104"
    name = "usage-missing"
    title = "Calls without token counts"
    kind = "note"
    needs = ()

    @classmethod
    @override
    def bad(cls) -> Session:
        """Lose the counts of a call."""
        return _changed(
            Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session(),
            1,
            usage=None,
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep them."""
        return Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        missing = survey(ctx).without_usage
        if missing:
            yield Draft(
                index=missing[0],
                verdict="proved",
                established=(
                    (
                        f"{len(missing)} of {plural(len(ctx.session.calls), 'call')} "
                        f"{'has' if len(missing) == 1 else 'have'} no token counts."
                    ),
                ),
                to_check=(
                    "Whether the client asks for usage in streams, and whether a gateway drops it.",
                ),
                also=_ids(ctx, missing),
            )


def _changed(session: Session, index: int, **fields: Any) -> Session:
    calls = list(session.calls)
    calls[index] = msgspec.structs.replace(calls[index], **fields)
    return msgspec.structs.replace(session, calls=tuple(calls))


def _ids(ctx: Context, positions: list[int]) -> tuple[str, ...]:
    return tuple(ctx.session.calls[index].id for index in positions[1:_LISTED])
