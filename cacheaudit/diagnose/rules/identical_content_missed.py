"""Rule WST109."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import count, expiry_line, shortfall
from cacheaudit.model.call import Session


class IdenticalContentMissed(Rule):
    """A request with a prompt of exactly the same size as the one before was not read.

    ## Why it costs

    If it was the same request, all of it could have been read.

    ## What it rests on

    Equal sizes, and a read that falls short. Equal sizes are no proof of equal content.

    ## When to ignore

    When the second request was meant to differ.
    """

    id = "WST109"
    name = "identical-content-missed"
    title = "A prompt of the same size was not read"
    kind = "note"

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask the same again."""
        return Script().call(0, 0, 30_000).call(40, 0, 30_000).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask the same again and read it."""
        return Script().call(0, 0, 30_000).call(40, 30_000, 0).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if (
                event.total == event.previous_total
                and event.change is None
                and not event.boundaries
            ):
                yield Draft(
                    index=event.index,
                    verdict="consistent",
                    established=(
                        shortfall(event),
                        f"It has the same {count(event.total)} tokens as {event.previous.id}.",
                        expiry_line(event),
                    ),
                    to_check=(
                        "Whether the prompt reaches the smallest size that the model caches.",
                        "Whether the first write could be read already: its response had begun.",
                        "Whether the lifetime had passed.",
                        "Whether the model, the service or the workspace differed.",
                    ),
                    also=(event.previous.id,),
                )
