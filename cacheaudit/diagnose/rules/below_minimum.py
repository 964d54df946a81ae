"""Rule SIZ102."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix
from cacheaudit.providers.facts import rules

_LOOKED_AT = 8


class BelowMinimum(Rule):
    """A lane was not cached, and its prompts are smaller than what its model caches.

    ## Why it matters

    Below the minimum nothing is stored, and the provider says nothing: both counters stay zero. The
    minimum differs from model to model, so that a body which one model caches is too short for
    another.

    ## What it rests on

    The documented minimum of the model, recorded zeros for reads and writes, and a sign that
    caching was asked for: a marker in a recorded body, or another lane of the session that is
    cached.

    ## When to ignore

    When the prompts are meant to be short.
    """

    id = "SIZ102"
    name = "below-minimum"
    title = "Prompts are below the smallest size that the model caches"
    kind = "note"
    fix = Fix(
        "Put more of what stays the same in front of the marker, or choose a model with a "
        "smaller minimum"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Send to a model of 4,096 what another one of 1,024 caches."""
        return _small("claude-opus-4-5")

    @classmethod
    @override
    def good(cls) -> Session:
        """Send it to a model that caches it."""
        return _small("claude-sonnet-4-5", 2_000)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        if not any(lane.cached for lane in ctx.lanes.values()) and not _has_marker(ctx):
            return
        for name, lane in ctx.lanes.items():
            if lane.cached or not lane.knows_writes:
                continue
            largest = survey(ctx).lanes[name].largest
            call = ctx.session.calls[lane.first_index]
            found = rules(call.provider, call.model, call.at, call.surface)
            minimum = 0 if found is None else found.integer("minimum_tokens")
            if largest < minimum:
                yield Draft(
                    index=lane.first_index,
                    verdict="consistent",
                    established=(
                        (
                            f"Calls of lane {name}: {lane.calls}, the largest with "
                            f"{count(largest)} tokens, none of which read or wrote. "
                            f"{call.model} caches from {count(minimum)} tokens on."
                        ),
                    ),
                    to_check=(
                        (
                            "Whether the marked part alone, without what follows it, reaches "
                            "that size."
                        ),
                    ),
                )


def _small(model: str, written: int = 0) -> Session:
    """Two lanes with the same prompt of 2,000 tokens."""
    return (
        Script()
        .call(0, 0, 2_000, lane="a", model="claude-sonnet-4-5")
        .call(20, 2_000, 0, lane="a", model="claude-sonnet-4-5")
        .call(400, 0, written, uncached=2_000 - written, lane="b", model=model)
        .call(420, written, 0, uncached=2_000 - written, lane="b", model=model)
        .session()
    )


def _has_marker(ctx: Context) -> bool:
    return any(
        call.prompt is not None and any(block.marker is not None for block in call.prompt.blocks)
        for call in ctx.session.calls[:_LOOKED_AT]
    )
