"""Rule WRM104."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_TOKENS = 40_000


class LargeFirstWrite(Rule):
    """The conversation began with a very large prompt of which nothing was cached.

    ## Why it matters

    Tools, instructions and project material are written by every new conversation that cannot read
    them. Large ones are worth a look: which tools are used at all, and whether what stays the same
    stands in front, with a marker of its own, so that other sessions read it.

    ## What it rests on

    The first call of a main lane, which wrote forty thousand tokens or more and read less than a
    tenth of its prompt.

    ## When to ignore

    When the conversation begins with the document that it is about.
    """

    id = "WRM104"
    name = "large-first-write"
    title = "The first call of the conversation wrote very much"
    kind = "note"
    fix = Fix("Send fewer tools, and put a marker behind what other sessions share")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Begin with everything."""
        return Script().call(0, 0, 64_000).call(30, 64_000, 900).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Begin with what others have cached."""
        return Script().call(0, 60_000, 4_000).call(30, 64_000, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for opening in ctx.openings:
            if opening.call.purpose == "subagent" or opening.written < _TOKENS:
                continue
            if opening.read * 10 < opening.total:
                yield Draft(
                    index=opening.index,
                    verdict="proved",
                    established=(
                        (
                            f"{opening.call.id} wrote {count(opening.written)} tokens and read "
                            f"{count(opening.read)} as the first call "
                            f"of lane {opening.call.lane}."
                        ),
                    ),
                    to_check=(
                        (
                            "Which part of it is tools, instructions and project material, and "
                            "which is the task."
                        ),
                        (
                            "Whether a marker stands behind the part that other sessions begin "
                            "with too."
                        ),
                    ),
                )
