"""Rule CMP105."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import LaneSurvey, survey
from cacheaudit.diagnose.wording import count, written_by
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_AT_LEAST = 3
_FEW = 8


class CompactedTooOften(Rule):
    """Compactions follow each other after a few calls.

    ## Why it costs

    Each compaction writes a summary and what was kept. It pays when many calls follow; after a few,
    writing is most of what is paid.

    ## What it rests on

    Three recorded compactions or more in one lane, half of them followed by at most eight calls
    before the next.

    ## When to ignore

    When single turns bring so much that the window is full again at once; then look at what they
    bring.
    """

    id = "CMP105"
    name = "compacted-too-often"
    title = "The conversation was compacted again after a few calls"
    kind = "note"
    needs = ("usage", "boundaries")
    fix = Fix("Compact at a larger size, and keep large results out of the prompt")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Compact after every third call."""
        return _compacting(3).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Do not compact."""
        return _compacting(0).call(60, 90_000, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for lane in survey(ctx).lanes.values():
            followed = sorted(len(c.later) + 1 for c in lane.compactions[:-1])
            if len(followed) + 1 < _AT_LEAST or followed[len(followed) // 2] > _FEW:
                continue
            yield Draft(
                index=max(lane.compactions[0].after, 0),
                verdict="proved",
                established=(
                    (
                        f"Lane {lane.name}: {len(lane.compactions)} compactions in {lane.calls} "
                        "calls, followed by "
                        f"{followed[0]} to {followed[-1]} calls up to the next; "
                        f"{_sums(ctx, lane)}"
                    ),
                ),
                to_check=("At which size the client compacts, and what fills the window so fast.",),
            )


def _sums(ctx: Context, lane: LaneSurvey) -> str:
    calls = (call for call in ctx.session.calls if call.lane == lane.name)
    written = written_by(*(call for call in calls if call.usage is not None))
    if written is None:
        return f"{count(lane.read)} tokens were read."
    said = f"{written} tokens were written and {count(lane.read)} read"
    if not written[0].isdigit():
        return f"{said}."
    return f"{said}: writes are {lane.write_share} % of what both cost."


def _compacting(times: int) -> Script:
    script = Script().call(0, 0, 90_000)
    for number in range(times):
        at = 100.0 * (number + 1)
        script.call(at, 15_000, 20_000, boundary="compaction")
        script.call(at + 20, 35_000, 30_000).call(at + 40, 65_000, 25_000)
    return script
