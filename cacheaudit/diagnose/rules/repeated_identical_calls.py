"""Rule WST104."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_AT_LEAST = 3
_TOKENS = 1_024


class RepeatedIdenticalCalls(Rule):
    """Calls in a row had prompts of exactly the same size.

    ## Why it costs

    A growing conversation never has the same size twice. Equal sizes in a row mean that the same
    question was asked again, as a repetition, a poll or a vote among answers.

    ## What it rests on

    Three calls or more in a row with equal prompt sizes and no recorded purpose to send them again.

    ## When to ignore

    When several answers to one prompt are wanted.
    """

    id = "WST104"
    name = "repeated-identical-calls"
    title = "The same prompt was sent several times"
    kind = "note"
    fix = Fix(
        "Keep the first answer, or ask for several answers in one request where the service can"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask the same four times."""
        return (
            Script()
            .call(0, 0, 20_000)
            .call(30, 20_000, 0)
            .call(60, 20_000, 0)
            .call(90, 20_000, 0)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask once."""
        return Script().call(0, 0, 20_000).call(30, 20_000, 900).call(60, 20_900, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        calls = ctx.session.calls
        for lane in survey(ctx).lanes.values():
            for index, number in lane.repeats:
                usage = calls[index].usage
                size = 0 if usage is None else usage.total_input or 0
                if number >= _AT_LEAST and size >= _TOKENS:
                    yield Draft(
                        index=index,
                        verdict="consistent",
                        established=(
                            (
                                f"{number} calls in a row from {calls[index].id} on had a "
                                f"prompt of exactly {count(size)} tokens."
                            ),
                        ),
                        to_check=(
                            (
                                "Whether it is a repetition, a poll, or several answers to one "
                                "prompt on purpose."
                            ),
                        ),
                    )
