"""Rule WST102."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_LISTED = 50


class LargeAddition(Rule):
    """One turn added tens of thousands of tokens at once, such as a log or a file as a whole.

    ## Why it matters

    What is added once is carried along and paid again in every later call, if only at the price of
    a read; and it fills the window.

    ## What it rests on

    The prompt grew by far more than the response before it was long. What was added cannot be seen
    from sizes.

    ## When to ignore

    When the model needs all of it.
    """

    id = "WST102"
    name = "large-addition"
    title = "Single turns added very much to the prompt"
    kind = "note"
    fix = Fix("Filter large results before they enter the prompt, and store the whole outside")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Read a log as a whole."""
        return Script().call(0, 0, 11_500).call(25, 11_500, 60_000).call(60, 71_500, 900).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Read the part that matters."""
        return Script().call(0, 0, 11_500).call(25, 11_500, 1_500).call(60, 13_000, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for lane in survey(ctx).lanes.values():
            for index, tokens in lane.floods[:_LISTED]:
                later = sum(call.lane == lane.name for call in ctx.session.calls[index + 1 :])
                yield Draft(
                    index=index,
                    verdict="proved",
                    established=(
                        (
                            f"{ctx.session.calls[index].id} has {count(tokens)} tokens more "
                            "than the prompt and the response before "
                            f"it; {later} later calls carry them along."
                        ),
                    ),
                    to_check=(
                        (
                            "What was added: a tool result, a file, an attachment - and how "
                            "much of it is needed."
                        ),
                    ),
                )
