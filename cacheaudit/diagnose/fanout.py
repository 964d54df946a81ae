"""Beginnings that started together: within one session or across sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from cacheaudit.diagnose.context import LOSS_TOKENS
from cacheaudit.diagnose.times import TTL_SECONDS
from cacheaudit.model.call import Call

# Starts that far apart still meet a prefix that nobody has finished writing.
TOGETHER = 5.0
# Writes of one fan-out differ by the task of each agent.
_ALIKE = 4


class Beginning(Protocol):
    """First call of a lane, as far as needed here."""

    @property
    def call(self) -> Call:
        """The call."""
        ...

    @property
    def read(self) -> int:
        """Tokens read."""
        ...

    @property
    def written(self) -> int:
        """Tokens written."""
        ...


_B = TypeVar("_B", bound=Beginning)


def fan_outs(beginnings: Iterable[_B]) -> Iterator[list[_B]]:
    """Yield groups of beginnings with equal reads and nearly equal writes that started together.

    The first of a group is the one whose writes the others could have read.
    """
    groups: dict[tuple[str | None, int], list[_B]] = {}
    for one in beginnings:
        if one.written > LOSS_TOKENS and one.call.start_bounds is not None:
            groups.setdefault((one.call.model, one.read), []).append(one)
    for members in groups.values():
        if len(members) > 1:
            members.sort(key=_start)
            yield from _together(members)


def _together(members: list[_B]) -> Iterator[list[_B]]:
    group = [members[0]]
    for one in members[1:]:
        if _start(one) - _start(group[0]) <= TOGETHER and _could_not_read(group[0].call, one.call):
            if is_alike([*(other.written for other in group), one.written]):
                group.append(one)
            continue
        if len(group) > 1:
            yield group
        group = [one]
    if len(group) > 1:
        yield group


def _start(one: Beginning) -> float:
    bounds = one.call.start_bounds
    return 0.0 if bounds is None else bounds.low


def _could_not_read(leader: Call, follower: Call) -> bool:
    """Whether the follower may have begun before the leader's response did."""
    first, second = leader.start_bounds, follower.start_bounds
    if first is None or second is None:
        return False
    readable = leader.first_token_at
    return readable is None or second.low <= readable


def is_alike(writes: Sequence[int]) -> bool:
    """Whether writes are worth looking at and nearly of one size."""
    return min(writes) > LOSS_TOKENS and (max(writes) - min(writes)) * _ALIKE <= max(writes)


def repeats(beginnings: Iterable[_B]) -> Iterator[list[_B]]:
    """Yield groups of beginnings of exactly the same sizes, each within the lifetime of the last.

    Those that started together are a fan-out and left to it.
    """
    groups: dict[tuple[str | None, int, int], list[_B]] = {}
    for one in beginnings:
        if one.written > LOSS_TOKENS and one.call.start_bounds is not None:
            groups.setdefault((one.call.model, one.read, one.written), []).append(one)
    for members in groups.values():
        members.sort(key=_start)
        group = members[:1]
        for one in members[1:]:
            gap = _start(one) - _start(group[-1])
            if gap > _lifetime(group[-1].call):
                yield from _several(group)
                group = []
            if gap > TOGETHER or not group:
                group.append(one)
        yield from _several(group)


def _several(group: list[_B]) -> Iterator[list[_B]]:
    if len(group) > 1:
        yield group


def _lifetime(call: Call) -> float:
    """Lifetime of what a call wrote; the shortest where the record does not say."""
    usage = call.usage
    return TTL_SECONDS["1h" if usage is not None and usage.write_1h else "5m"]
