"""Rule DAT101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import (
    ROUTING,
    SERVER,
    TOGETHER,
    aftermath,
    expiry_line,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Rival

LAST_RANK = 99


class UnexplainedLoss(Rule):
    """Tokens were sent again and the record does not tell why.

    ## Why it is shown

    The remainder that no rule explains belongs into the report: a cause that is guessed wrong is
    worse than none.

    ## What it rests on

    The call read less than the call before it had left in the cache.

    ## When to ignore

    Automatic caches promise nothing; a miss now and then is usual there.
    """

    id = "DAT101"
    name = "unexplained-loss"
    title = "Tokens were sent again; the record does not tell why"
    no_edit = "It names no cause, so that there is nothing to change."

    @classmethod
    @override
    def bad(cls) -> Session:
        """Lose a part in the middle, without times."""
        return (
            Script()
            .call(None, 0, 20_000)
            .call(None, 20_000, 40_000)
            .call(None, 41_000, 20_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Read everything."""
        return (
            Script()
            .call(None, 0, 20_000)
            .call(None, 20_000, 40_000)
            .call(None, 60_000, 1_000)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if ctx.left is not None and event.index not in ctx.left:
                continue
            yield Draft(
                index=event.index,
                claims=event.lost,
                rank=LAST_RANK,
                verdict="unknown",
                established=(
                    shortfall(event),
                    expiry_line(event),
                    *aftermath(event),
                    *reason_lines(event),
                ),
                to_check=_checks(event),
                rivals=_rivals(event),
                change=event.change,
            )


def _checks(event: Event) -> tuple[str, ...]:
    found = ["Record request bodies: the first difference names the cause."]
    if event.timing.low is None:
        found.append("Record when requests start: expiry cannot be judged without.")
    if event.reason is None:
        found.append("Ask for the provider's own miss diagnostics, where it has them.")
    return tuple(found)


def _rivals(event: Event) -> tuple[Rival, ...]:
    if event.has_bodies and event.change is None:
        return (SERVER,)
    changed = Rival("messages-changed", "A change behind the part that was read.")
    beside = (TOGETHER,) if event.timing.overlaps else ()
    return (*beside, changed, SERVER if event.explicit else ROUTING)
