"""Rule PFX103."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import MIXED, ROUTING, count, expiry_line, reason_lines, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

_RANK = 15


class OlderPrefixRead(Rule):
    """The read equals an older prompt: something was changed for a while and changed back.

    ## Why it costs

    The calls in between wrote a line of cached content of their own, and the first call behind
    them finds only what was there before.

    ## What it rests on

    The read has exactly the size that an older call left in the cache, and every call between the
    two missed. That shows that the older entry was found and the newer one was not. Whether a
    parameter (`tool_choice`, `thinking`), an edit of the history or another account was switched
    and switched back cannot be told from sizes.

    ## When to ignore

    When the calls in between need the other setting.
    """

    id = "PFX103"
    name = "older-prefix-read"
    title = "An older prefix was read: something was switched and switched back"
    fix = Fix("Do not force tools or toggle thinking for single calls")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Force a tool for one call, then let the model choose again."""
        return (
            Script()
            .call(0, 0, 8_500)
            .call(20, 8_500, 30_650)
            .call(45, 7_350, 33_300)
            .call(70, 39_150, 3_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Let the model choose all along."""
        return (
            Script()
            .call(0, 0, 8_500)
            .call(20, 8_500, 30_650)
            .call(45, 39_150, 1_500)
            .call(70, 40_650, 1_500)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if event.older is None or not event.skipped_lost or event.switched is not None:
                continue
            if event.has_bodies or event.timing.overlaps:
                continue
            yield _draft(ctx, event, event.older)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _draft(ctx: Context, event: Event, older: int) -> Draft:
    before = ctx.session.calls[older]
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The read has exactly the size of an older prompt.",
        established=(
            shortfall(event),
            (
                f"{count(event.read)} tokens are exactly what {before.id} left in the cache, not "
                f"what {event.previous.id} did ({count(event.expected)}): the older entry was "
                "still there."
            ),
            expiry_line(event),
            *reason_lines(event),
        ),
        to_check=(
            (
                "Which setting or which part of the history differed only in the calls "
                f"between {before.id} and {event.call.id}: tool_choice, thinking, effort, an "
                "edited message."
            ),
        ),
        rivals=(
            Rival(
                "parameter-changed",
                "A parameter that was changed for these calls and changed back.",
            ),
            Rival("messages-changed", "A part of the history that was rewritten and restored."),
            ROUTING,
            MIXED,
        ),
    )
