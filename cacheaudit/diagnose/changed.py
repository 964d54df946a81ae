"""Drafts of the rules that rest on a body difference or on the provider's own word."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.rule import Draft
from cacheaudit.diagnose.wording import aftermath, describe, reason_lines, shortfall
from cacheaudit.model.change import Change

# Claims on the front of the prompt hold whether or not the lifetime had passed; a change among the
# messages does not explain why tools and system were not read either.
FRONT_RANK = 9
MESSAGES_RANK = 12


def changed_drafts(
    ctx: Context,
    reasons: tuple[str, ...],
    matches: Callable[[Change], bool],
    rank: int,
    title: Callable[[Change], str],
) -> Iterator[Draft]:
    """Yield a draft for every call whose body or whose provider's reason shows the change.

    Args:
        ctx: The session.
        reasons: The provider's words that mean it.
        matches: Whether a body difference is the one meant.
        rank: Rank of the claim.
        title: Title from the body difference.
    """
    for event in ctx.events:
        change = event.change if event.change is not None and matches(event.change) else None
        is_reported = event.reason in reasons
        if change is None and not is_reported:
            continue
        contradiction = _contradiction(event, change, is_reported)
        proved = not contradiction
        yield Draft(
            index=event.index,
            claims=event.lost,
            rank=rank,
            why="The bodies differ there." if change is not None else "The provider says so.",
            verdict="proved" if proved else "consistent",
            evidence="body_diff" if change is not None else "reported",
            title=title(change) if change is not None else None,
            established=(
                shortfall(event),
                *((describe(change),) if change is not None else ()),
                *reason_lines(event),
                *contradiction,
                *aftermath(event),
            ),
            to_check=()
            if change is not None
            else ("Record request bodies to see which part changed, and at which byte.",),
            change=change,
        )


def _contradiction(event: Event, change: Change | None, is_reported: bool) -> tuple[str, ...]:
    """Say where the provider's word, the bodies and the usage do not agree."""
    found: list[str] = []
    if change is None and event.has_bodies:
        where = "an unchanged prefix" if event.change is None else describe(event.change)
        found.append(f"The recorded bodies disagree with the provider: they show {where}")
    if is_reported and event.reason == "tools_changed" and event.read > 0:
        found.append(
            "Tools come first in the prompt, yet part of it was read: the change lies behind a "
            "marker, or the comparison was with another request than the one before."
        )
    return tuple(found)
