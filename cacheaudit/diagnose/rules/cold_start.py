"""Rule WRM101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Opening
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session


class ColdStart(Rule):
    """The first call of a conversation or subagent had nothing to read.

    ## Why it is not a loss

    Something has to be written once before it can be read. The note says how much each beginning
    wrote, and how much it could read from what other sessions had left.

    ## What it rests on

    It is the first call of its lane.

    ## When to look closer

    When many short sessions begin one after the other with the same tools and system: a shared
    prefix with a marker of its own would be read across sessions.
    """

    id = "WRM101"
    name = "cold-start"
    title = "First calls wrote their prompts"
    kind = "note"

    @classmethod
    @override
    def bad(cls) -> Session:
        """Begin."""
        return Script().call(0, 0, 8_500).call(30, 8_500, 1_500).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Begin with everything cached already."""
        return Script().call(0, 8_500, 0).call(30, 8_500, 1_500).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for opening in ctx.openings:
            if opening.written > 0:
                yield Draft(
                    index=opening.index,
                    verdict="proved",
                    established=(_line(opening),),
                )


def _line(opening: Opening) -> str:
    read = f", and read {count(opening.read)} that were cached before" if opening.read else ""
    return (
        f"{opening.call.id} is the first call of lane {opening.call.lane}: it wrote "
        f"{count(opening.written)} tokens{read}."
    )
