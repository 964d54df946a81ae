"""Drafts of the rules that rest on a body difference or on the provider's own word.

A difference is proof only together with the usage: what was read must be what earlier requests had
left in front of it. Where the two disagree, or the provider names something else, the finding says
so and is no longer called proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff, diffs
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.reach import Reach, facts_of
from cacheaudit.diagnose.rule import Draft
from cacheaudit.diagnose.wording import aftermath, count, describe, reason_lines, shortfall
from cacheaudit.model.change import Change
from cacheaudit.model.finding import Rival, Verdict

# Claims on the front of the prompt hold whether or not the lifetime had passed; a change among the
# messages does not explain why tools and system were not read either.
FRONT_RANK = 9
MESSAGES_RANK = 12
# Rules that name what was done are served before the general ones, and still behind expiry where
# the difference lies in the messages.
NAMED_FRONT_RANK = 7
NAMED_MESSAGES_RANK = 11

_LEVEL_WORDS: Final = {
    "tools_changed": "tools",
    "system_changed": "system",
    "messages_changed": "messages",
    "input_changed": "messages",
}
_PARAMETER_WORDS: Final = {
    "model_changed": ("model", "speed"),
    "text_format_changed": ("text.format", "response_format"),
    "reasoning_effort_changed": ("reasoning.effort", "reasoning_effort"),
    "verbosity_changed": ("text.verbosity", "verbosity"),
    "prompt_cache_key_changed": ("prompt_cache_key",),
    "service_tier_changed": ("service_tier",),
}
# Settings that some models render in front of the tools; which ones is not published.
_MAY_DROP_ALL: Final = frozenset({"thinking", "output_config.effort", "output_config.format"})


def changed_drafts(
    ctx: Context,
    reasons: tuple[str, ...],
    matches: Callable[[Diff], bool],
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
    found = {diff.event.index: diff for diff in diffs(ctx)}
    for event in ctx.events:
        diff = found.get(event.index)
        if diff is not None and matches(diff):
            yield body_draft(diff, rank=rank, title=title(diff.change))
        elif event.reason in reasons:
            yield _reported(event, rank)


def named_drafts(
    ctx: Context,
    matches: Callable[[Diff], bool],
    *,
    reasons: tuple[str, ...] = (),
    title: Callable[[Diff], str | None] = lambda _: None,
    says: Callable[[Diff], str | None] = lambda _: None,
    check: str | None = None,
) -> Iterator[Draft]:
    """Yield drafts of a rule that names one thing that was done to the prompt.

    Args:
        ctx: The session.
        matches: Whether a difference is that thing.
        reasons: The provider's words that mean it.
        title: Title for one difference, where the rule's own is too general.
        says: One more sentence on what the bodies show.
        check: What the record leaves open.
    """
    seen: set[int] = set()
    for diff in diffs(ctx):
        if matches(diff):
            seen.add(diff.event.index)
            rank = NAMED_FRONT_RANK if diff.in_front else NAMED_MESSAGES_RANK
            line = says(diff)
            yield body_draft(
                diff,
                rank=rank,
                title=title(diff),
                says=() if line is None else (line,),
                to_check=() if check is None else (check,),
            )
    if reasons:
        for event in ctx.events:
            if event.reason in reasons and event.index not in seen:
                yield _reported(event, NAMED_FRONT_RANK if event.change is None else FRONT_RANK)


def body_draft(
    diff: Diff,
    *,
    rank: int,
    title: str | None = None,
    says: Iterable[str] = (),
    to_check: Iterable[str] = (),
) -> Draft:
    """Make the draft of a body difference; it is proved where usage and provider agree."""
    event = diff.event
    against = (*_against_provider(event, diff.change), *_against_usage(diff))
    claims = event.lost
    usage_line: tuple[str, ...] = ()
    rivals: tuple[Rival, ...] = ()
    found = diff.reach
    if found is not None:
        usage_line = (_agreement_line(diff, found),)
        short = found.marked and event.read < found.tokens - found.below
        if short and not _drops_all(diff) and event.expected - found.tokens > 0:
            # What lies in front of the difference was lost for another reason.
            claims = min(claims, event.expected - found.tokens)
            rivals = (
                Rival("ttl-expired", "Content in front of the difference was not read either."),
            )
    verdict: Verdict = "consistent" if against or not _agrees(diff, found) else "proved"
    return Draft(
        index=event.index,
        claims=claims,
        rank=rank,
        why="The bodies differ there.",
        verdict=verdict,
        evidence="body_diff",
        title=title,
        established=(
            shortfall(event),
            describe(diff.change),
            *says,
            *usage_line,
            *reason_lines(event),
            *against,
            *_header_line(diff),
            *(
                ("For this model it is a hint where to send the request.",)
                if _is_hint(diff)
                else ()
            ),
            *aftermath(event),
        ),
        to_check=tuple(to_check),
        rivals=rivals,
        change=diff.change,
    )


def _agrees(diff: Diff, found: Reach | None) -> bool:
    if found is None or diff.header is not None:
        return False
    if _is_hint(diff):
        return False
    return found.agrees(diff.event.read) or _drops_all(diff)


def _is_hint(diff: Diff) -> bool:
    """Whether the setting only routes: it is no part of what identifies a prefix."""
    facts = facts_of(diff.event.call) if diff.shape == "parameter" else None
    return facts is not None and diff.change.path in facts.value("ignored_parameters", ())


def _drops_all(diff: Diff) -> bool:
    """Whether nothing was read, behind a setting that may be rendered in front of everything."""
    is_setting = diff.shape == "parameter" and diff.change.path in _MAY_DROP_ALL
    return is_setting and diff.event.read == 0


def _agreement_line(diff: Diff, found: Reach) -> str:
    size = f"{count(found.tokens)} tokens" + (" (estimated)" if found.estimated else "")
    read = count(diff.event.read)
    if found.marked:
        line = f"Earlier requests had marked {size} in front of it; {read} were read"
    else:
        line = f"{size} in front of it are as in an earlier request; {read} were read"
    if _drops_all(diff) and not found.agrees(0):
        return f"{line}: some models render this setting in front of the tools."
    return f"{line}, which agrees." if found.agrees(diff.event.read) else f"{line}."


def _against_usage(diff: Diff) -> tuple[str, ...]:
    """Say where what was read cannot have stood in front of the difference."""
    found, read = diff.reach, diff.event.read
    if found is None or read <= found.tokens + found.above:
        return ()
    return (
        (
            f"The usage disagrees with the bodies: {count(read)} tokens were read, more than "
            "stand in front of the difference. The recorded body may not be the one that was sent."
        ),
    )


def _against_provider(event: Event, change: Change) -> tuple[str, ...]:
    """Say where the provider's word and the bodies do not agree."""
    reason = event.reason
    if reason is None:
        return ()
    if reason == "none":
        return ("The recorded bodies disagree with the provider, which found no divergence.",)
    names = _PARAMETER_WORDS.get(reason)
    is_setting = change.kind == "parameter"
    if names is not None:
        agrees = is_setting and change.path in names
    elif reason in _LEVEL_WORDS:
        agrees = not is_setting and change.level == _LEVEL_WORDS[reason]
    else:
        return ()
    if agrees:
        return ()
    return (f"The recorded bodies disagree with the provider, which says `{reason}`.",)


def _header_line(diff: Diff) -> tuple[str, ...]:
    if diff.header != "too":
        return ()
    return (
        (
            "A line that the client writes for its own provider differs as well; whether the "
            "provider leaves it out of the key is disputed."
        ),
    )


def _reported(event: Event, rank: int) -> Draft:
    """Make the draft of the provider's word, which no body bears out."""
    against = _without_bodies(event)
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=rank,
        why="The provider says so.",
        verdict="consistent" if against else "proved",
        evidence="reported",
        established=(shortfall(event), *reason_lines(event), *against, *aftermath(event)),
        to_check=("Record request bodies to see which part changed, and at which byte.",),
    )


def _without_bodies(event: Event) -> tuple[str, ...]:
    found: list[str] = []
    if event.has_bodies:
        where = "an unchanged prefix." if event.change is None else describe(event.change)
        found.append(f"The recorded bodies disagree with the provider: they show {where}")
    if event.reason == "tools_changed" and event.read > 0:
        found.append(
            "Tools come first in the prompt, yet part of it was read: the change lies behind a "
            "marker, or the comparison was with another request than the one before."
        )
    return tuple(found)
