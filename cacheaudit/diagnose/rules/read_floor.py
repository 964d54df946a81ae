"""Rule BRK101."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event, Run
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import (
    LOOKBACK,
    PARAMETER,
    client_check,
    client_line,
    count,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

_RANK = 9
_AT_LEAST = 3


class ReadFloor(Rule):
    """Call after call reads the same small front and writes the whole conversation again.

    ## Why it costs

    Tools and system are read every time, so that the cache seems to work; but the conversation
    is written again and again and never read. The waste is what each call writes beyond its own
    new tokens.

    ## What it rests on

    The same read in at least three calls in a row while the prompt grows. It is consistent with
    a marker that is missing on the last message, and with content near the beginning of the
    conversation that differs each time.

    ## When to ignore

    Never; it is the most common expensive pattern.
    """

    id = "BRK101"
    name = "read-floor"
    title = "Only a constant front is read; the conversation is written again every time"
    fix = Fix("Mark the last content block of every request, and keep the first messages unchanged")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Never read more than tools and system."""
        return (
            Script()
            .call(0, 0, 20_000)
            .call(30, 14_500, 8_000)
            .call(60, 14_500, 10_500)
            .call(90, 14_500, 13_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Read the conversation too."""
        return (
            Script()
            .call(0, 0, 20_000)
            .call(30, 20_000, 2_500)
            .call(60, 22_500, 2_500)
            .call(90, 25_000, 2_500)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for run in ctx.runs:
            if run.read > 0 and len(run.events) >= _AT_LEAST and _grows(run):
                for event in run.events:
                    if _is_plain(event):
                        yield _draft(event, run)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _grows(run: Run) -> bool:
    sizes = [event.total for event in run.events]
    return all(a <= b for a, b in pairwise(sizes)) and sizes[0] < sizes[-1]


def _is_plain(event: Event) -> bool:
    return event.explicit and event.change is None and event.switched is None


def _draft(event: Event, run: Run) -> Draft:
    total = sum(e.lost for e in run.events)
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why=f"{len(run.events)} calls in a row read the same {count(run.read)} tokens.",
        established=(
            (
                f"{len(run.events)} calls in a row, {run.events[0].call.id} to "
                f"{run.events[-1].call.id}, read exactly {count(run.read)} tokens while the prompt "
                f"grew from {count(run.events[0].total)} to {count(run.events[-1].total)}; "
                f"{count(total)} tokens were sent again beyond what was new."
            ),
            shortfall(event),
            *client_line(event),
            *reason_lines(event),
        ),
        to_check=(
            "Whether the last content block of each request carries a cache marker.",
            "Whether something near the beginning of the conversation differs each time.",
            *client_check(run.events[0]),
        ),
        rivals=(
            PARAMETER,
            LOOKBACK,
            Rival("messages-changed", "An early message that is rendered anew each time."),
        ),
    )
