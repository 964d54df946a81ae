"""Rule CMP104."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import Compaction, LaneSurvey, survey
from cacheaudit.diagnose.times import TTL_SECONDS, Timing
from cacheaudit.diagnose.wording import count
from cacheaudit.diagnose.worth import Swap
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix
from cacheaudit.model.usage import Usage

# Where so much is in the prompt the window may leave no choice.
_FULL = 140_000


class CompactedWhileWarm(Rule):
    """Cached content was compacted away before the shorter prompt had earned it back.

    ## Why it costs

    Reading a long cached conversation is cheap; a compaction throws it away and writes a summary.
    Each later call then reads less, so that it pays after some calls - or never. Behind a pause
    that the content did not survive, compacting is free.

    ## What it rests on

    A recorded compaction that nothing forced, within the lifetime of what was cached, and the calls
    that followed it. It is said only where the calls up to the next compaction would have been
    cheaper without it, at the prices in force and counting input alone.

    ## When to ignore

    When the window was nearly full, or the shorter context made the answers better.
    """

    id = "CMP104"
    name = "compacted-while-warm"
    title = "A compaction of cached content did not pay for itself"
    kind = "note"
    needs = ("usage", "start_times", "boundaries")
    fix = Fix("Compact late, or where the cached content has expired anyway")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Compact, ask once more, leave."""
        return (
            Script()
            .call(0, 0, 90_000)
            .call(60, 15_000, 20_000, boundary="compaction")
            .call(90, 35_000, 900)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Go on without."""
        return Script().call(0, 0, 90_000).call(60, 90_000, 900).call(90, 90_900, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for lane in survey(ctx).lanes.values():
            for compaction in lane.compactions:
                draft = _draft(ctx, lane, compaction)
                if draft is not None:
                    yield draft


def _draft(ctx: Context, lane: LaneSurvey, compaction: Compaction) -> Draft | None:
    calls = ctx.session.calls
    if compaction.before < 0 or compaction.after < 0 or compaction.trigger == "auto":
        return None
    before, after = calls[compaction.before], calls[compaction.after]
    first = after if compaction.request is None else calls[compaction.request]
    old, new = before.usage, after.usage
    if old is None or new is None or (old.total_input or 0) >= _FULL:
        return None
    ttl = "1h" if lane.last_write.get("1h", -1) >= lane.last_write.get("5m", -1) else "5m"
    gap = Timing.between(before, first, TTL_SECONDS[ttl], False, 0.0)
    if "5m" not in lane.last_write and "1h" not in lane.last_write:
        return None
    size, smaller = old.total_input or 0, new.total_input or 0
    if gap.state != "under" or smaller >= size:
        return None
    more = size - smaller
    swaps = [Swap(compaction.after, tokens, kind, "") for kind, tokens in _parts(new)]
    swaps.append(Swap(compaction.after, size, "", "read"))
    swaps += [Swap(index, more, "", "read") for index in compaction.later]
    if compaction.request is not None and first.usage is not None:
        swaps += [
            Swap(compaction.request, tokens, kind, "") for kind, tokens in _parts(first.usage)
        ]
    return Draft(
        index=compaction.after,
        verdict="consistent",
        established=(
            (
                f"{after.id}: the prompt went from {count(size)} to {count(smaller)} tokens "
                "within the lifetime of what was "
                f"cached; {len(compaction.later)} more calls followed, each {count(more)} "
                "tokens shorter."
            ),
        ),
        to_check=("Whether the window, or the quality of answers, left a choice.",),
        worth=tuple(swaps),
        must_pay=True,
    )


def _parts(usage: Usage) -> list[tuple[str, int]]:
    parts = (
        ("uncached", usage.uncached_input),
        ("read", usage.cache_read),
        ("5m", usage.write_5m),
        ("1h", usage.write_1h),
        ("other", usage.write_other),
    )
    return [(kind, tokens) for kind, tokens in parts if tokens]
