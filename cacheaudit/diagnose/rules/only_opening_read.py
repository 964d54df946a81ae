"""Rule WST108."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session

_AT_LEAST = 3


class OnlyOpeningRead(Rule):
    """Call after call reads a short front of the prompt and little else.

    ## Why it costs

    The hit rate looks like a cache that works, but what is read is the front; the conversation
    behind it is paid in full.

    ## What it rests on

    In half of the calls of a lane or more, the hit ended before the conversation began.

    ## When to ignore

    When the calls share nothing but their instructions.
    """

    id = "WST108"
    name = "only-opening-read"
    title = "Only a short opening of the prompt is read"
    kind = "note"

    @classmethod
    @override
    def bad(cls) -> Session:
        """Read the front only."""
        return (
            Script()
            .call(0, 0, 20_000)
            .call(30, 7_000, 15_000)
            .call(60, 7_100, 17_000)
            .call(90, 7_200, 19_000)
            .call(120, 7_300, 21_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Read the conversation too."""
        return (
            Script()
            .call(0, 0, 20_000)
            .call(30, 20_000, 2_000)
            .call(60, 22_000, 2_000)
            .call(90, 24_000, 2_000)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        lanes: dict[str, list[Event]] = {}
        for event in ctx.events:
            if event.is_floor and event.explicit and not event.boundaries:
                lanes.setdefault(event.lane.name, []).append(event)
        for name, events in lanes.items():
            lane = ctx.lanes[name]
            if len(events) >= _AT_LEAST and len(events) * 2 >= lane.calls:
                reads = sorted(event.read for event in events)
                yield Draft(
                    index=events[0].index,
                    verdict="proved",
                    established=(
                        (
                            f"Lane {name}: {len(events)} of {lane.calls} calls read between "
                            f"{count(reads[0])} and {count(reads[-1])} "
                            f"tokens, less than the smallest prompt ({count(lane.smallest)})."
                        ),
                    ),
                    to_check=(
                        "Where the earliest change between neighbouring requests lies.",
                        (
                            "Whether system prompt, tools or project material are reordered or "
                            "rewritten."
                        ),
                    ),
                    also=tuple(event.call.id for event in events[1:]),
                )
