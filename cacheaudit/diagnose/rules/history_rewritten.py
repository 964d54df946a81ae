"""Rule CMP102."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import MIXED, aftermath, count, expiry_line, reason_lines
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

_RANK = 18


class HistoryRewritten(Rule):
    """The prompt became smaller although the record holds no compaction.

    ## Why it costs

    A smaller prompt cannot be the old one with something appended: earlier content was taken out
    or replaced, and everything behind the first such place is written again.

    ## What it rests on

    Sizes alone: consistent with pruned tool results, dropped thinking, a compaction without a
    marker or a rewound conversation, and proof of none of them.

    ## When to ignore

    When the shorter prompt is read often enough afterwards to pay for the rewrite.
    """

    id = "CMP102"
    name = "history-rewritten"
    title = "History was rewritten or compacted without a marker"
    is_trade = True
    fix = Fix("Prune in few large steps instead of many small ones, or compact once")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Prune most of the history."""
        return Script().call(0, 0, 90_000).call(40, 15_000, 20_000).call(70, 35_000, 900).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Append only."""
        return Script().call(0, 0, 90_000).call(40, 90_000, 700).call(70, 90_700, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if event.has_bodies or not _has_shrunk(event):
                continue
            # Nothing read at all means that the front was lost too; pruning does not do that.
            if event.read == 0 and event.total * 2 >= event.previous_total:
                continue
            yield Draft(
                index=event.index,
                claims=event.lost,
                rank=_RANK,
                why="The prompt became smaller, so that earlier content was taken out.",
                established=(
                    _sizes(event),
                    expiry_line(event),
                    *reason_lines(event),
                    *aftermath(event),
                ),
                to_check=(
                    (
                        "Compare the two bodies: pruned tool results, dropped thinking, a "
                        "compaction or a rewound conversation look alike in the sizes."
                    ),
                ),
                rivals=(
                    Rival(
                        "compacted", "A compaction that left no marker would give the same sizes."
                    ),
                    *((MIXED,) if event.next_read == "older" else ()),
                ),
            )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _has_shrunk(event: Event) -> bool:
    by = event.previous_total - event.total
    return by > 1_024 and by * 50 > event.previous_total


def _sizes(event: Event) -> str:
    return (
        f"{event.call.id}: the prompt went from {count(event.previous_total)} to "
        f"{count(event.total)} tokens, so it is no pure extension; {count(event.read)} were read."
    )
