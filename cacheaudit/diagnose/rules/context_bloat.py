"""Rule WST105."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_AT_LEAST = 10
_TOKENS = 150_000


class ContextBloat(Rule):
    """Nearly everything is read from the cache, and the prompt is very long all the same.

    ## Why it matters

    Cached tokens still fill the window, slow the response down, and are paid at the price of a read
    in every call. A high hit rate says nothing about whether they are needed.

    ## What it rests on

    A hit rate of nine tenths or more, with a prompt of 150,000 tokens or more.

    ## When to ignore

    When the task needs all of it.
    """

    id = "WST105"
    name = "context-bloat"
    title = "The cache works, but the window fills"
    kind = "note"
    fix = Fix("Store large results outside the prompt, or compact behind a pause")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Carry everything along."""
        return _long(150_000)

    @classmethod
    @override
    def good(cls) -> Session:
        """Stay short."""
        return _long(20_000)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for lane in survey(ctx).lanes.values():
            if (
                lane.calls >= _AT_LEAST
                and lane.largest >= _TOKENS
                and lane.read * 10 >= lane.total * 9
            ):
                yield Draft(
                    index=lane.last,
                    verdict="proved",
                    established=(
                        (
                            f"Lane {lane.name}: {lane.read * 100 // lane.total} % of the input "
                            "was read from the cache, and the "
                            f"prompt reached {count(lane.largest)} tokens; "
                            f"{count(lane.total // lane.calls)} a call on average."
                        ),
                    ),
                    to_check=(
                        (
                            "Whether old tool results are still carried along, and which of "
                            "them are needed."
                        ),
                        "What could be stored outside, or summarised once.",
                    ),
                )


def _long(size: int) -> Session:
    script = Script().call(0, 0, size)
    for number in range(14):
        script.call(20.0 * (number + 1), size + 500 * number, 500)
    return script.session()
