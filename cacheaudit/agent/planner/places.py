"""Gives each place its lifetime, in the order that the provider asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from cacheaudit.agent.planner.forecast import CacheRules
from cacheaudit.agent.planner.lifetime import NONE
from cacheaudit.agent.planner.spots import FRONT, Candidate

Marks = list[tuple[int, str]]


def is_ordered(marks: Sequence[tuple[int, str]], rules: CacheRules) -> bool:
    """Whether lifetimes only become shorter from front to back, as they must."""
    return all(
        rules.seconds.get(a[1], 0) >= rules.seconds.get(b[1], 0) for a, b in pairwise(sorted(marks))
    )


def with_lifetimes(
    chosen: Sequence[Candidate],
    own: Sequence[tuple[int, str]],
    wanted: Mapping[str, str],
    rules: CacheRules,
) -> tuple[Marks, dict[int, str]] | None:
    """Put the caller's markers and ours together.

    Args:
        chosen: Places to mark.
        own: Blocks that the caller marked, with their lifetimes; these stay.
        wanted: Lifetime of the front and of the conversation, or ``none``.
        rules: Rules of the cache.

    Returns:
        All markers in render order, and the role of each of ours; ``None`` where the caller's own
        order is one that the provider refuses.
    """
    if not is_ordered(own, rules):
        return None
    taken = {index for index, _ in own}
    seconds = rules.seconds
    ours: dict[int, tuple[str, str]] = {}
    longest = 0.0
    for item in sorted(chosen, key=lambda item: item.index, reverse=True):
        ttl = wanted["front" if item.role in FRONT else "talk"]
        if item.index in taken or (ttl == NONE and not item.anchor):
            continue
        ttl = rules.default if ttl == NONE else ttl
        if seconds.get(ttl, 0) < longest:
            ttl = _named(longest, seconds)
        ttl = _between(item.index, ttl, own, seconds)
        longest = max(longest, seconds.get(ttl, 0))
        ours[item.index] = (ttl, item.role)
    marks = sorted([*own, *((index, ttl) for index, (ttl, _) in ours.items())])
    if not is_ordered(marks, rules):
        return None
    return marks, {index: role for index, (_, role) in ours.items()}


def _named(wanted: float, seconds: Mapping[str, float]) -> str:
    return next(name for name, value in seconds.items() if value == wanted)


def _between(
    index: int, ttl: str, own: Sequence[tuple[int, str]], seconds: Mapping[str, float]
) -> str:
    """Fit a lifetime between those of the caller's markers before and behind."""
    most = min((seconds.get(t, 0) for i, t in own if i < index), default=float("inf"))
    least = max((seconds.get(t, 0) for i, t in own if i > index), default=0.0)
    value = max(min(seconds.get(ttl, 0), most), least)
    return _named(value, seconds)
