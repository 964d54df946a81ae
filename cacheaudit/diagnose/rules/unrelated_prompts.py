"""Rule DAT103."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.model.call import Session


class UnrelatedPrompts(Rule):
    """The calls of a lane are no growing conversation, so that nothing is said of their misses.

    ## Why it is shown

    What a call could have read is judged by the call before it. In a log of separate questions that
    rests on nothing, and a loss would be made up.

    ## What it rests on

    More than every third prompt is smaller than the one before it.

    ## When to look closer

    When the calls do belong together: give each conversation its own session or lane.
    """

    id = "DAT103"
    name = "unrelated-prompts"
    title = "Prompts do not grow out of each other; their misses are not judged"
    kind = "note"

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask separate questions."""
        script = Script()
        for number, size in enumerate((9_000, 4_000, 8_000, 3_500, 9_500, 4_200, 7_000)):
            script.call(30.0 * number, 2_000, size)
        return script.session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Hold one conversation."""
        script = Script().call(0, 2_000, 9_000)
        for number in range(6):
            script.call(30.0 * (number + 1), 11_000 + 900 * number, 900)
        return script.session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for lane in ctx.unrelated:
            yield Draft(
                index=lane.first_index,
                verdict="unknown",
                established=(
                    (
                        f"{lane.shrinks} of {lane.calls} calls of lane {lane.name} have a smaller "
                        "prompt than the call before them."
                    ),
                ),
                to_check=("Whether the calls belong to one conversation.",),
            )
