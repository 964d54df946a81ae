"""Rule SIZ101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import SERVER, count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.mark import Mark

# The largest documented minimum of any model: below it, no cache is expected.
_LARGEST_MINIMUM = 4_096


class NothingCached(Rule):
    """A lane with large prompts never read from or wrote to the cache.

    ## Why it matters

    Without a cache every call pays the full price for the whole conversation. Whether it would have
    paid is another question: nothing was lost that had been stored.

    ## What it rests on

    Reads and writes that are recorded as zero in every call of the lane, with prompts beyond the
    largest documented minimum size.

    ## When to ignore

    When caching was left out on purpose, or the calls have nothing in common.
    """

    id = "SIZ101"
    name = "nothing-cached"
    title = "Large prompts were neither read from nor written to the cache"
    kind = "note"
    fix = Fix(
        "Mark the last block of the request",
        patch='"cache_control": {"type": "ephemeral"}',
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Send large prompts without a marker."""
        return Script().call(0, 0, 0, uncached=20_000).call(30, 0, 0, uncached=22_000).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Send them with one."""
        return Script().call(0, 0, 20_000).call(30, 20_000, 2_000).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for lane in ctx.lanes.values():
            if lane.cached or lane.smallest < _LARGEST_MINIMUM or not lane.knows_writes:
                continue
            yield Draft(
                index=lane.first_index,
                verdict="unknown",
                established=(
                    (
                        f"Calls of lane {lane.name}: {lane.calls}, the smallest with "
                        f"{count(lane.smallest)} tokens, none of which read or wrote."
                    ),
                ),
                to_check=(
                    "Whether the requests carry a cache marker, and on which block.",
                    "Whether the marked prefix is below the model's minimum size.",
                ),
                rivals=(SERVER,),
            )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return Mark()
