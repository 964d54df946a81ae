"""Rule PFX105."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import (
    IMAGES,
    LOOKBACK,
    PARAMETER,
    SERVER,
    SYSTEM,
    aftermath,
    count,
    expiry_line,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

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
            if (
                (event.is_floor or _is_undone(event))
                and event.explicit
                and event.switched is None
                and not event.has_bodies
                and not event.timing.overlaps
            ):
                yield _draft(event)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _is_undone(event: Event) -> bool:
    """Whether only the front was read, and the call behind it found the older messages again."""
    return event.next_read == "older" and 0 < event.read * 2 < event.expected


def _shorter(event: Event) -> tuple[Rival, ...]:
    if not event.missing:
        return ()
    why = f"The prompt lacks at least {count(event.missing)} tokens that appending would have left."
    return (Rival("history-rewritten", why),)


def _where(event: Event) -> str:
    if not event.is_floor:
        return (
            f"{count(event.read)} tokens at the front were read, and the next call found the older "
            "messages again: what differed was in this call alone."
        )
    return (
        f"{count(event.read)} tokens are less than the smallest prompt of the lane "
        f"({count(event.smallest)}): the hit ends before its messages do. Tools, system "
        "and model up to there match and are not the cause."
    )


def _draft(event: Event) -> Draft:
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The hit ends before the conversation does.",
        established=(
            shortfall(event),
            _where(event),
            expiry_line(event),
            *aftermath(event),
            *reason_lines(event),
        ),
        to_check=(
            "Compare tool_choice, thinking and effort of the two requests.",
            "Compare the first messages, and whether images came or went.",
            "Count the content blocks added since the last marker.",
        ),
        rivals=(PARAMETER, IMAGES, LOOKBACK, SYSTEM, *_shorter(event), SERVER),
    )
