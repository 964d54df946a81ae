"""Rule DAT109."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session

_AT_LEAST = 3
_GROWN = 2


class WriteCountsDropped(Rule):
    """The record shows growing reads of a cache that has to be written, and no write.

    ## Why it is shown

    What is read was written before, and writes are dearer than ordinary input. Gateways that
    translate between two formats often drop the field, so that the cost comes out too small.

    ## What it rests on

    A Claude model, whose cache is written at a price, with three calls or more whose reads grow
    while no write is recorded.

    ## When to ignore

    When another client writes the same prefixes.
    """

    id = "DAT109"
    name = "write-counts-dropped"
    title = "Reads grow, but no write is recorded"
    kind = "note"

    @classmethod
    @override
    def bad(cls) -> Session:
        """Drop the write field."""
        return (
            Script(provider="openrouter", ttl=None)
            .call(0, 0, None, uncached=20_000)
            .call(20, 20_000, None, uncached=1_000)
            .call(40, 21_000, None, uncached=1_000)
            .call(60, 22_000, None, uncached=1_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Pass it on."""
        return (
            Script(provider="openrouter", ttl=None)
            .call(0, 0, 20_000)
            .call(20, 20_000, 1_000)
            .call(40, 21_000, 1_000)
            .call(60, 22_000, 1_000)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for lane in survey(ctx).lanes.values():
            if lane.written or not lane.read or lane.calls < _AT_LEAST:
                continue
            calls = ctx.session.calls
            if "claude" not in (calls[lane.first].model or ""):
                continue
            reads = _reads(ctx, lane.name)
            grown = sum(after > before > 0 for before, after in pairwise(reads))
            if grown >= _GROWN:
                yield Draft(
                    index=lane.first,
                    verdict="consistent",
                    established=(
                        (
                            f"Lane {lane.name}: reads grew to {count(max(reads))} tokens over "
                            f"{lane.calls} calls, and no call "
                            "records a write."
                        ),
                    ),
                    to_check=(
                        (
                            "Whether a gateway drops the write counts: compare one response of "
                            "the provider itself."
                        ),
                    ),
                )


def _reads(ctx: Context, lane: str) -> list[int]:
    return [
        call.usage.cache_read or 0
        for call in ctx.session.calls
        if call.lane == lane and call.usage is not None
    ]
