"""Rule DAT108."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.wording import first_of
from cacheaudit.model.call import Session
from cacheaudit.model.plural import plural
from cacheaudit.model.usage import (
    FLAG_CACHE_OVER_INPUT,
    FLAG_FIELDS_DISAGREE,
    FLAG_NEGATIVE,
    FLAG_SPLIT,
    FLAG_TOTAL,
)

_LISTED = 50
_WORDS = {
    FLAG_NEGATIVE: "A part would be negative",
    FLAG_SPLIT: "Writes by lifetime differ from their total",
    FLAG_CACHE_OVER_INPUT: "More was cached than sent",
    FLAG_TOTAL: "Parts differ from the total",
    FLAG_FIELDS_DISAGREE: "Two fields for the same count disagree",
}


class ContradictoryUsage(Rule):
    """The counts of some calls do not add up.

    Parts and totals differ, two fields for the same thing disagree, or a part would be negative.

    ## Why it is shown

    Two conventions are in use: input with and without what was cached. Where a gateway mixes them,
    tokens are counted twice or lost, and so is the money.

    ## What it rests on

    The arithmetic of single records.

    ## When to ignore

    When the difference is a few tokens.
    """

    id = "DAT108"
    name = "contradictory-usage"
    title = "Token counts contradict each other"
    kind = "note"

    @classmethod
    @override
    def bad(cls) -> Session:
        """Let a total differ from its parts."""
        return _flagged(
            Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Let it agree."""
        return Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        flagged = survey(ctx).flagged
        if not flagged:
            return
        kinds = {flag: positions for flag, positions in flagged.items() if flag in _WORDS}
        found = sorted({index for positions in kinds.values() for index in positions})
        if found:
            yield Draft(
                index=found[0],
                verdict="proved",
                established=tuple(
                    f"{_WORDS[flag]}: {plural(len(positions), 'call')}"
                    f"{first_of(len(positions), ctx.session.calls[positions[0]].id)}."
                    for flag, positions in kinds.items()
                ),
                to_check=("Whether a gateway changes the usage of the provider.",),
                also=_ids(ctx, found),
            )


def _flagged(session: Session) -> Session:
    calls = list(session.calls)
    usage = calls[1].usage
    if usage is not None:
        flagged = msgspec.structs.replace(usage, flags=(FLAG_TOTAL,))
        calls[1] = msgspec.structs.replace(calls[1], usage=flagged)
    return msgspec.structs.replace(session, calls=tuple(calls))


def _ids(ctx: Context, positions: list[int]) -> tuple[str, ...]:
    return tuple(ctx.session.calls[index].id for index in positions[1:_LISTED])
