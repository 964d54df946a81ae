"""A lane as its sizes tell it, and what of it another lifetime would have left to read.

What a call repeats of the one before it is known from the sizes; whether it was read, or lost to a
pause, from the record. Under another setting a pause that the entry outlives is a read instead of a
write, and one that it does not outlive a write instead of a read. What was lost for other reasons
stays lost, and what was read stays read under the same lifetime or a longer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage
from cacheaudit.simulate.edits.keep_alive import refresh_after
from cacheaudit.simulate.policy import Setting

SECONDS: Final = {"5m": 300.0, "1h": 3600.0}
_EVERY: Final = {seconds: refresh_after(seconds) for seconds in SECONDS.values()}
SHORTEST: Final = min(SECONDS.values())
"""No pause shorter than this loses anything."""
SOONEST: Final = min(_EVERY.values())
"""No refresh is sent before."""
_BROKEN: Final = frozenset({"compaction", "clear", "branch"})
# Less is rounding at a marker, not a lost prefix.
_SMALL: Final = 1024
_NEVER: Final = float("inf")


class Turn(msgspec.Struct, frozen=True, gc=False):
    """One call as its sizes tell it.

    Attributes:
        uncached: Tokens sent uncached.
        read: Tokens read.
        written: Tokens written.
        long: Those of them that were written for an hour.
        repeated: Tokens that could have been read, had the prefix outlived the pause.
        expired: Some were lost to a pause longer than the lifetime then in force.
        lifetime: That lifetime, in seconds.
        after: The lifetime in force from this call on.
        gap: Seconds since the start of the call before it; ``None`` for the first of a lane.
        following: Seconds to the start of the next call; infinite for the last.
        shared: Tokens that it can at most have in common with the call before it.
    """

    uncached: int
    read: int
    written: int
    long: int
    repeated: int
    expired: bool
    lifetime: float
    after: float
    gap: float | None
    following: float
    shared: int


class Parts(msgspec.Struct, frozen=True, gc=False):
    """Tokens of a call under a setting."""

    uncached: int
    read: int
    written: int
    long: int


Figures = tuple[int, int, int, int, int, bool, float, float, float | None, float, int]
"""The fields of a :class:`Turn`, which most calls need not become."""


def is_plain(call: Call, usage: Usage) -> bool:
    """Whether nothing about a call needs a closer look, as is so for nearly all."""
    return (
        usage.write_5m is not None
        and usage.write_1h is not None
        and usage.write_30m is usage.write_12h is None
        and usage.uncached_input is not None
        and usage.cache_read is not None
        and not usage.parts
        and call.requests == 1
        and call.purpose != "keep_alive"
    )


def unfit(call: Call, usage: Usage | None, at: float | None) -> str | None:
    """Say in a word why a call tells nothing of other lifetimes; ``None`` where it does."""
    if usage is None or usage.uncached_input is None or usage.cache_read is None:
        return "no_usage"
    if usage.parts or call.requests != 1:
        return "several_passes"
    if call.purpose == "keep_alive":
        return "refreshes"
    if at is None:
        return "no_start_time"
    if usage.cache_write is None or usage.write_30m or usage.write_12h:
        return "no_choice_of_lifetime"
    return None


def turns(fit: Sequence[tuple[Call, Usage, float]]) -> Iterator[Figures]:
    """Read the calls of a lane, with their starts, as turns."""
    cached = size = 0
    model: str | None = None
    gap: float | None = None
    after = SECONDS["5m"]
    count = len(fit)
    for place, (call, usage, at) in enumerate(fit, 1):
        read, long, short = usage.cache_read or 0, usage.write_1h or 0, usage.write_5m or 0
        written = long + short + (usage.write_other or 0)
        uncached = usage.uncached_input or 0
        total = uncached + read + written
        repeated, expired, shared = read, False, read
        before = after
        if gap is not None and call.model == model and not (call.boundaries and _is_broken(call)):
            # Comparisons: a call of `min` or `max` costs as much as many of them.
            shared = total if total < size else size  # noqa: FURB136
            if shared < read:
                shared = read
            if gap >= before:
                expired = min(cached, read + written) - read > _SMALL
                if expired and read + written >= cached:
                    # What a shorter prompt has in common with the one before is not known.
                    repeated = cached
        following = _NEVER
        if place < count:
            following = fit[place][2] - at
            if following < 0.0:
                following = 0.0
        if long or short:
            after = SECONDS["1h" if long else "5m"]
        yield (
            uncached, read, written, long, repeated, expired, before, after, gap, following, shared,
        )  # fmt: skip
        cached, size, gap, model = read + written, total, following, call.model


def _is_broken(call: Call) -> bool:
    """Whether a call with boundaries before it does not go on from the call before."""
    return any(boundary.kind in _BROKEN for boundary in call.boundaries)


def under(turn: Turn, setting: Setting, most: int) -> Parts:
    """Tokens of a call under a setting; ``most`` as for :func:`refreshes_after`."""
    total = turn.uncached + turn.read + turn.written
    if setting.lifetime == "none":
        return Parts(total, 0, 0, 0)
    read, written = turn.read, turn.written
    if not _is_there(turn, setting, most):
        read, written = 0, read + written
    elif turn.repeated > read:
        written = max(0, written - (turn.repeated - read))
        read = turn.repeated
    long = written if setting.lifetime == "1h" else 0
    if setting.lifetime == "recorded" and turn.long:
        long = written if turn.long == turn.written else min(turn.long, written)
    return Parts(total - read - written, read, written, long)


def _is_there(turn: Turn, setting: Setting, most: int) -> bool:
    """Whether what the call before wrote or read can still be read."""
    lifetime = SECONDS.get(setting.lifetime, turn.lifetime)
    if turn.gap is None or turn.gap < lifetime:
        return True
    if not turn.expired and lifetime >= turn.lifetime:
        return True
    bridged = _EVERY[lifetime] * _count(turn.gap, setting, lifetime, most)
    return turn.gap - bridged < lifetime


def refreshes_after(turn: Turn, setting: Setting, most: int) -> int:
    """Count the refreshes between a call and the next, or until the cap after the last one.

    Args:
        turn: The call.
        setting: Lifetime and refreshing.
        most: Refreshes that cost less than a write; looked at where pauses are known.
    """
    if not setting.keep_alive or not (turn.read or turn.written):
        return 0
    lifetime = SECONDS.get(setting.lifetime, turn.after)
    return _count(turn.following, setting, lifetime, most)


def _count(pause: float, setting: Setting, lifetime: float, most: int) -> int:
    """Refreshes within a pause; at the very moment of the next call none is needed.

    Where pauses are known, they are sent only if they bridge it and are at most ``most``.
    """
    if not setting.keep_alive:
        return 0
    every = _EVERY[lifetime]
    whole = int(min(pause, setting.cap) // every)
    if whole and whole * every >= pause:
        whole -= 1
    if not setting.known:
        return whole
    needed = pause >= lifetime and pause - whole * every < lifetime
    return whole if needed and whole <= most else 0
