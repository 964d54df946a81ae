"""Rule SIZ103."""

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

_AT_LEAST = 10
_TOKENS = 20_000


class TooShortToCache(Rule):
    """Many calls, each with a prompt below the smallest size that the model caches.

    ## Why it matters

    No marker helps there. Where the calls share instructions, one longer shared prefix above the
    minimum, or several questions in one call, would be cached.

    ## What it rests on

    Ten calls or more of one lane, all below the documented minimum of the model, none read or
    written.

    ## When to ignore

    When the calls share nothing.
    """

    id = "SIZ103"
    name = "too-short-to-cache"
    title = "Many short prompts, each below what the model caches"
    kind = "note"
    fix = Fix("Ask several questions in one request, or share one longer prefix")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask twelve short questions."""
        return _questions(3_000, 0)

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask with a shared prefix above the minimum."""
        return _questions(500, 6_000)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for name, lane in ctx.lanes.items():
            if lane.cached or not lane.knows_writes or lane.calls < _AT_LEAST:
                continue
            sums = survey(ctx).lanes[name]
            call = ctx.session.calls[lane.first_index]
            found = rules(call.provider, call.model, call.at, call.surface)
            minimum = 0 if found is None else found.integer("minimum_tokens")
            if sums.largest < minimum and sums.total >= _TOKENS:
                yield Draft(
                    index=lane.first_index,
                    verdict="proved",
                    established=(
                        (
                            f"{lane.calls} calls of lane {name} sent {count(sums.total)} "
                            f"tokens, at most {count(sums.largest)} at "
                            f"once; {call.model} caches from {count(minimum)} on."
                        ),
                    ),
                    to_check=("Whether they share a beginning, and how long it is.",),
                )


def _questions(own: int, shared: int) -> Session:
    script = Script()
    for number in range(12):
        is_first = number == 0
        script.call(
            30.0 * number,
            0 if is_first else shared,
            shared if is_first else 0,
            uncached=own,
        )
    return script.session()
