"""Rule DAT105."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_LISTED = 50


class PriceUnknown(Rule):
    """For some calls no price is known, so that their cost is not part of the total.

    ## Why it is shown

    A total without them looks too small. No price is guessed.

    ## What it rests on

    A call with tokens and no model name; over a whole audit, also models that no price table has.

    ## When to ignore

    Never: give a price file, or the model's name.
    """

    id = "DAT105"
    name = "price-unknown"
    title = "Calls whose price is not known"
    kind = "note"
    fix = Fix("Give a price file for the models that no table has")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Lose the name of the model."""
        return _changed(
            Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session(),
            1,
            model=None,
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep it."""
        return Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        nameless = survey(ctx).nameless
        if nameless:
            yield Draft(
                index=nameless[0],
                verdict="proved",
                established=(_nameless(len(nameless)),),
                to_check=("Which model answered: the response names it.",),
                also=_ids(ctx, nameless),
            )


def _nameless(number: int) -> str:
    if number == 1:
        return "1 call with tokens does not name its model."
    return f"{number:,} calls with tokens do not name their model."


def _changed(session: Session, index: int, **fields: Any) -> Session:
    calls = list(session.calls)
    calls[index] = msgspec.structs.replace(calls[index], **fields)
    return msgspec.structs.replace(session, calls=tuple(calls))


def _ids(ctx: Context, positions: list[int]) -> tuple[str, ...]:
    return tuple(ctx.session.calls[index].id for index in positions[1:_LISTED])
