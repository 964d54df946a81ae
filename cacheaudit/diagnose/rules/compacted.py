"""Rule CMP101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import count, reason_lines, written_by
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit

_RANK = 5


class Compacted(Rule):
    """The conversation was replaced by a summary.

    ## Why it costs

    The first call behind a compaction writes the summary and whatever was kept; only tools and
    system can be read. In exchange, every later call carries a shorter prompt.

    ## What it rests on

    The record itself: a compaction boundary, a summary request just before, the provider's own
    compaction entry, or its word `context_compacted`. Part of what was written is new text that no
    cache could have held, so that the loss given is the most that it can be.

    ## When to ignore

    Nearly always: late compaction pays. Look at it when it comes often, or early.
    """

    id = "CMP101"
    name = "compacted"
    title = "The conversation was compacted"
    needs = ("usage", "boundaries")
    is_trade = True
    provider_reasons = ("context_compacted",)
    fix = Fix("Compact later, or where the cached content has expired anyway")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Compact a long conversation."""
        return (
            Script()
            .call(0, 0, 167_000)
            .call(90, 34_900, 23_300, boundary="compaction")
            .call(120, 58_200, 1_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Go on without."""
        return (
            Script().call(0, 0, 167_000).call(90, 167_000, 900).call(120, 167_900, 1_000).session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            source = _source(event)
            if source is not None:
                yield Draft(
                    index=event.index,
                    claims=event.lost,
                    rank=_RANK,
                    why="The record holds a compaction.",
                    verdict="proved",
                    evidence="reported",
                    established=(_sizes(event), source, *reason_lines(event)),
                    change=event.change,
                )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _source(event: Event) -> str | None:
    for boundary in event.boundaries:
        if boundary.kind == "compaction":
            how = f" ({boundary.trigger})" if boundary.trigger else ""
            return f"The record holds a compaction{how} between the two calls."
    if event.compaction_part:
        return "The provider's usage record holds a compaction entry for this call."
    if event.previous.purpose == "compaction" and event.call.purpose != "compaction":
        return "The previous call was a summary request."
    if event.reason == "context_compacted":
        return "The provider says that the context was compacted."
    return None


def _sizes(event: Event) -> str:
    written = written_by(event.call)
    wrote = "" if written is None else f", {written} written"
    return (
        f"{event.call.id}: the prompt went from {count(event.previous_total)} to "
        f"{count(event.total)} tokens; {count(event.read)} were read{wrote}. "
        f"At most {count(event.lost)} of them had been cached before."
    )
