"""Rule WRM103."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_AT_LEAST = 3
_TOKENS = 4_096


class SubagentsStartCold(Rule):
    """Subagent after subagent begins with a prompt of which nothing is cached.

    ## Why it matters

    Each subagent has tools and instructions of its own, so that nothing of the main conversation
    can be read. Where they come often, the same kind could read its own beginning, or be sent the
    main conversation's front and read that.

    ## What it rests on

    Three lanes or more whose first call read nothing and wrote a prompt.

    ## When to ignore

    When the subagents differ from each other, or come further apart than the lifetime.
    """

    id = "WRM103"
    name = "subagents-start-cold"
    title = "Subagents begin without anything to read"
    kind = "note"
    fix = Fix("Give subagents of one kind the same beginning with a marker behind it")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Start three kinds of subagents."""
        return _agents(0)

    @classmethod
    @override
    def good(cls) -> Session:
        """Let them begin with tools and system of the main conversation."""
        return _agents(9_000)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        main = ctx.openings[0].call.lane if ctx.openings else ""
        cold = [
            o
            for o in ctx.openings
            if o.call.purpose == "subagent"
            and o.call.lane != main
            and not o.read
            and o.written >= _TOKENS
        ]
        if len(cold) >= _AT_LEAST:
            yield Draft(
                index=cold[0].index,
                verdict="proved",
                established=(
                    (
                        f"{len(cold)} subagents began without reading anything; together they "
                        "wrote "
                        f"{count(sum(o.written for o in cold))} tokens."
                    ),
                ),
                to_check=(
                    (
                        "Whether subagents of one kind have the same tools and system prompt, "
                        "byte for byte."
                    ),
                    "Whether a marker stands at the end of their system prompt.",
                ),
                also=tuple(o.call.id for o in cold[1:]),
            )


def _agents(read: int) -> Session:
    script = Script().call(0, 0, 30_000)
    for number in range(3):
        size = 12_000 + 700 * number
        script.call(
            60.0 * (number + 1), read, size - read, lane=f"sub-{number}", purpose="subagent"
        )
    return script.session()
