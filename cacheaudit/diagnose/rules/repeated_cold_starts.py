"""Rule WRM102."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.fanout import repeats
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix, Rival


class RepeatedColdStarts(Rule):
    """First calls within the lifetime each wrote the same amount and read none of it.

    ## Why it costs

    A beginning that is the same each time can be read by all but the first, as long as it lives.
    That needs a marker at the end of what they share, and the same bytes in front of it.

    ## What it rests on

    First calls with the same model whose reads and writes have exactly the same size, each within
    the lifetime of the one before. Equal sizes are a strong hint and no proof; with recorded bodies
    the common prefix is compared.

    ## When to ignore

    When the prompts only happen to have the same size.
    """

    id = "WRM102"
    name = "repeated-cold-starts"
    title = "Conversations that begin alike wrote the same beginning each time"
    kind = "note"
    needs = ("usage", "start_times")
    fix = Fix("Mark the end of what they share, and keep it the same byte for byte")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Begin three times with the same prompt."""
        return (
            Script()
            .call(0, 0, 12_000, duration=5, lane="a")
            .call(60, 0, 12_000, duration=5, lane="b")
            .call(120, 0, 12_000, duration=5, lane="c")
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Read what the first one left."""
        return (
            Script()
            .call(0, 0, 12_000, duration=5, lane="a")
            .call(60, 12_000, 0, duration=5, lane="b")
            .call(120, 12_000, 0, duration=5, lane="c")
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for group in repeats(ctx.openings):
            first = group[0]
            yield Draft(
                index=group[1].index,
                verdict="consistent",
                established=(
                    (
                        f"{len(group)} first calls from {first.call.id} on each read "
                        f"{count(first.read)} tokens and wrote "
                        f"{count(first.written)}, each within the lifetime of the one before."
                    ),
                ),
                to_check=(
                    "Whether their prompts are the same, and up to where.",
                    "Whether a marker stands at the end of what they share.",
                ),
                rivals=(
                    Rival(
                        "system-changed",
                        "A clock or id in the system prompt has the same size each time.",
                    ),
                ),
                also=tuple(one.call.id for one in (first, *group[2:])),
            )
