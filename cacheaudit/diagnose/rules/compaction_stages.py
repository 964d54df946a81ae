"""Rule CMP106."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import Compaction, survey
from cacheaudit.diagnose.wording import count
from cacheaudit.diagnose.worth import Stage
from cacheaudit.model.call import Session


class CompactionStages(Rule):
    """What a compaction cost: the summary request, the first request behind it, and the later ones.

    ## Why it matters

    A compaction is judged by the sum of the three: a summary request that reads the conversation is
    cheap, the first request behind it writes the summary and what was kept, and only the later ones
    are cheaper than before.

    ## What it rests on

    Recorded compactions. Many clients do not record the summary request; then its stage is not
    known and said to be so.

    ## When to look closer

    When the first two stages cost more than the later ones can save.
    """

    id = "CMP106"
    name = "compaction-stages"
    title = "What compactions cost, in three stages"
    kind = "note"

    @classmethod
    @override
    def bad(cls) -> Session:
        """Compact with a recorded summary request."""
        return (
            Script()
            .call(0, 0, 160_000)
            .call(60, 160_000, 900, purpose="compaction")
            .call(90, 15_000, 20_000)
            .call(120, 35_000, 900)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Go on without."""
        return Script().call(0, 0, 160_000).call(60, 160_000, 900).call(90, 160_900, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for lane in survey(ctx).lanes.values():
            for compaction in lane.compactions:
                if compaction.after >= 0:
                    yield _draft(ctx, compaction)


def _draft(ctx: Context, compaction: Compaction) -> Draft:
    calls = ctx.session.calls
    after = calls[compaction.after]
    old, new = _size(ctx, compaction.before), _size(ctx, compaction.after)
    request = (
        "the summary request is not in the record"
        if compaction.request is None
        else "the summary request is recorded"
    )
    stages = []
    if compaction.request is not None:
        stages.append(Stage(f"Summary request before {after.id}", (compaction.request,)))
    stages.append(Stage(f"First request behind it ({after.id})", (compaction.after,)))
    if compaction.later:
        stages.append(Stage("Later requests up to the next compaction", tuple(compaction.later)))
    return Draft(
        index=compaction.after,
        verdict="proved",
        established=(f"{after.id}: {count(old)} tokens became {count(new)}; {request}.",),
        stages=tuple(stages),
    )


def _size(ctx: Context, index: int) -> int:
    usage = ctx.session.calls[index].usage if index >= 0 else None
    return 0 if usage is None else usage.total_input or 0
