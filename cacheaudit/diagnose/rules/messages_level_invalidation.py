"""Rule PFX105."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import (
    IMAGES,
    LOOKBACK,
    PARAMETER,
    SERVER,
    aftermath,
    count,
    expiry_line,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_RANK = 24


class MessagesLevelInvalidation(Rule):
    """Only tools and system were read, although the messages had been cached.

    ## Why it costs

    The whole conversation is written again.

    ## What it rests on

    The read is smaller than the smallest prompt of the lane, so that the hit ends before the
    conversation does - with the usual two markers, at the end of the system prompt. Tools, system
    and model up to there still match and are excluded as causes. What is left - `tool_choice`,
    `thinking`, images, an edited first message, lookback - cannot be told apart by sizes.

    ## When to ignore

    When it happens once and the conversation is short.
    """

    id = "PFX105"
    name = "messages-level-invalidation"
    title = "Only the front of the prompt was read; the messages no longer matched"
    fix = Fix("Keep tool_choice and thinking the same, and only append to the history")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Force a tool for the last call."""
        return Script().call(0, 0, 8_500).call(20, 8_500, 30_650).call(45, 7_350, 33_300).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Let the model choose."""
        return Script().call(0, 0, 8_500).call(20, 8_500, 30_650).call(45, 39_150, 1_500).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            is_candidate = event.is_floor and event.explicit and event.switched is None
            if is_candidate and not event.has_bodies and not event.timing.overlaps:
                yield _draft(event)


def _draft(event: Event) -> Draft:
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The hit ends before the conversation does.",
        established=(
            shortfall(event),
            (
                f"{count(event.read)} tokens are less than the smallest prompt of the lane "
                f"({count(event.smallest)}): the hit ends before its messages do. Tools, system "
                "and model up to there match and are not the cause."
            ),
            expiry_line(event),
            *aftermath(event),
            *reason_lines(event),
        ),
        to_check=(
            "Compare tool_choice, thinking and effort of the two requests.",
            "Compare the first messages, and whether images came or went.",
            "Count the content blocks added since the last marker.",
        ),
        rivals=(PARAMETER, IMAGES, LOOKBACK, SERVER),
    )
