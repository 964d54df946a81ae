"""What is accepted and yet never read, or read less than it could be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cacheaudit.jobs.linting.catalogue import Problem, problem
from cacheaudit.jobs.linting.sizes import bounds
from cacheaudit.jobs.linting.subject import Subject
from cacheaudit.jobs.linting.volatile import CLOCK, GIT, HEX, Volatile, find_volatile

_ADVICE: Final = {
    CLOCK: "Move it into the newest user message, or give the day only.",
    GIT: "Move it into a user message; two sessions differ here after any edit.",
    HEX: (
        "Leave it out or move it behind the cached part. (Whether the Claude API itself strips"
        " such a client header before it looks is disputed.)"
    ),
}
_MOVE: Final = "Move it behind the cached part, into the newest user message."


def reach(subject: Subject) -> Iterator[Problem]:
    """Yield what a cache with markers (Claude's and those like it) never or seldom reads."""
    yield from _loose(subject)
    if subject.is_partial:
        return
    if not subject.marked:
        yield from _unmarked(subject)
        return
    yield from _surplus(subject)
    yield from below_minimum(subject, subject.marked[-1])
    yield from volatile(subject, subject.marked)
    if subject.integer("lookback_positions") is not None:
        yield from _tail(subject)
        yield from _turn(subject)


def _loose(subject: Subject) -> Iterator[Problem]:
    for place in subject.places:
        if place.spot == "loose":
            message = (
                "No content stands before this cache point."
                if subject.wire == "converse"
                else "A marker belongs on a content block of the message, not on the message."
            )
            yield problem("marker-without-content", place.path, message)
    if subject.automatic is not None and subject.automatic_index is None:
        yield problem(
            "marker-without-content",
            subject.automatic.path,
            "No block of this request can carry the automatic marker; it is skipped.",
        )


def _surplus(subject: Subject) -> Iterator[Problem]:
    """Yield markers above the limit of services of which no error is documented."""
    most, paths = subject.integer("most_markers"), tuple(p.path for p in subject.places)
    if most is None or len(paths) <= most or subject.machine == "claude":
        return
    message = f"{len(paths)} markers; {subject.model} takes {most}: {', '.join(paths)}."
    yield problem("more-breakpoints-than-written", paths[0], message, paths)


def _unmarked(subject: Subject) -> Iterator[Problem]:
    if subject.automatic is not None:
        return
    if subject.body.get("max_tokens") == 0 and subject.wire == "messages":
        yield problem(
            "prewarm-without-marker",
            "max_tokens",
            "max_tokens 0 only fills the cache, and nothing is marked to be kept in it.",
        )
        return
    size, minimum = bounds(subject.blocks), subject.minimum
    if minimum is None or size.low < minimum:
        return
    where = "a cachePoint" if subject.wire == "converse" else "cache_control"
    message = (
        f"About {size.middle:,} tokens (estimated) are sent without a marker and are paid in full"
        f" every time; put {where} behind the part that later requests repeat."
    )
    path = "messages" if subject.wire == "converse" else "cache_control"
    yield problem("no-marker", path, message)


def below_minimum(subject: Subject, last: int) -> Iterator[Problem]:
    """Yield where the longest marked prefix is surely shorter than what gets cached."""
    minimum = subject.minimum
    if minimum is None:
        return
    size = bounds(subject.blocks[: last + 1])
    if size.high is None or size.high >= minimum:
        return
    count = f"{size.middle:,} tokens" if size.low == size.high else f"about {size.middle:,} tokens"
    origin = "recorded" if size.low == size.high else f"estimated, at most {size.high:,}"
    message = (
        f"The prefix up to the last marker has {count} ({origin}); {subject.model} caches nothing"
        f" under {minimum:,}. There is no error: both cache counters stay 0."
    )
    yield problem("below-minimum", subject.blocks[last].path, message)


def volatile(subject: Subject, marked: Sequence[int]) -> Iterator[Problem]:
    """Yield text that looks made anew inside what is to be read again.

    Args:
        subject: The request.
        marked: Content blocks that end a cached prefix.
    """
    found = find_volatile(subject.blocks)
    if not found:
        return
    first, places = found[0], {item.index: item for item in found}
    if any(index < first.index for index in marked):
        yield from (_in_prefix(item) for item in found if item.index <= marked[-1])
    elif all(index in places for index in marked):
        yield from (_marked(places[index]) for index in marked)
    elif first.kind == CLOCK:
        yield problem(
            "volatile-text-before-every-marker",
            first.path,
            f"{_what(first)}, before every marker: a request with another time reads nothing."
            f" {_ADVICE[CLOCK]}",
        )
    else:
        yield from (_in_prefix(item) for item in found if item.index <= marked[-1])


def _what(item: Volatile) -> str:
    return f"What looks like {item.kind} stands at byte {item.offset:,}"


def _marked(item: Volatile) -> Problem:
    message = (
        f"{_what(item)} of the marked block, and no marker stands before it: once it differs,"
        " nothing that was written is read. Mark the last block that stays the same;"
        f" {_ADVICE.get(item.kind, _MOVE)[0].lower()}{_ADVICE.get(item.kind, _MOVE)[1:]}"
    )
    return problem("marker-on-volatile-text", item.path, message)


def _in_prefix(item: Volatile) -> Problem:
    message = (
        f"{_what(item)}: if it differs in the next request, everything from here on is written"
        f" again. {_ADVICE.get(item.kind, _MOVE)}"
    )
    return problem("volatile-text-in-prefix", item.path, message)


def _tail(subject: Subject) -> Iterator[Problem]:
    positions, reach_of = subject.positions, subject.integer("lookback_positions") or 0
    last = subject.marked[-1]
    behind = positions[-1] - positions[last]
    if behind < reach_of:
        return
    message = (
        f"{behind} positions stand behind the last marker ({subject.blocks[last].path}); they are"
        f" sent uncached, and a marker at the end of a later request, which looks back over"
        f" {reach_of} positions, does not find this one. Mark the last block too, and one"
        f" at most every {reach_of - 1} positions."
    )
    yield problem("tail-beyond-lookback", subject.blocks[last].path, message)


def _turn(subject: Subject) -> Iterator[Problem]:
    """Look at what the last turn added: the reply to the request before, and what followed it."""
    blocks, positions = subject.blocks, subject.positions
    reach_of = subject.integer("lookback_positions") or 0
    end = _previous_end(subject)
    if end is None:
        return
    behind = [index for index in subject.marked if index >= end]
    if not behind or any(positions[index] - positions[end] < reach_of for index in behind):
        return
    added = positions[behind[0]] - positions[end]
    message = (
        f"The last turn put {added} positions between the end of the request before"
        f" ({blocks[end].path}) and this marker, which looks back over {reach_of}: what that"
        " request wrote at its end is not found and is written again. Join the blocks, or leave a"
        f" marker on {blocks[end].path}."
    )
    paths = (blocks[end].path, blocks[behind[0]].path)
    yield problem("turn-beyond-lookback", blocks[behind[0]].path, message, paths)


def _previous_end(subject: Subject) -> int | None:
    """Return the last block of the request that the last assistant message answered."""
    blocks = subject.blocks
    replies = [b.message for b in blocks if b.level == "messages" and b.role == "assistant"]
    if not replies or blocks[-1].role == "assistant":
        return None
    before = [
        index
        for index, block in enumerate(blocks)
        if block.level == "messages" and block.message < replies[-1]
    ]
    return before[-1] if before else None


def prewarm_marks(subject: Subject) -> Iterator[Problem]:
    """Yield a pre-warming request whose only marker falls on its placeholder."""
    if subject.body.get("max_tokens") != 0 or subject.automatic is None:
        return
    if subject.marked == [subject.automatic_index]:
        yield problem(
            "prewarm-marks-placeholder",
            subject.automatic.path,
            "The automatic marker falls on the placeholder message, which no later request"
            " repeats; mark the last block that later requests share.",
        )
