"""Says which requests may be sent when. No threads, no clock: both ways of sending share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_FAILURES: Final = 2


class Release:
    """Lets requests go when the one that they wait for can be read.

    Where a leader fails before its response begins, the first that waits for it takes its place;
    after two such failures the rest is let go.

    Args:
        after: For each request the one that it waits for.
    """

    def __init__(self, after: Sequence[int | None]) -> None:
        self._after = list(after)
        self._failures = 0
        self._waiting = {index for index, first in enumerate(after) if first is not None}

    def first(self) -> list[int]:
        """Return those that wait for nobody."""
        return [index for index, first in enumerate(self._after) if first is None]

    def is_awaited(self, index: int) -> bool:
        """Whether a request is still waited for."""
        return any(self._after[other] == index for other in self._waiting)

    def began(self, index: int) -> list[int]:
        """Return those that may go now that a response has begun; only the first word counts."""
        free = [other for other in sorted(self._waiting) if self._after[other] == index]
        self._waiting.difference_update(free)
        return free

    def failed(self, index: int) -> list[int]:
        """Return those that may go now that a request has failed before its response began."""
        waiting = [other for other in sorted(self._waiting) if self._after[other] == index]
        if not waiting:
            return []
        self._failures += 1
        if self._failures >= _FAILURES:
            self._waiting.difference_update(waiting)
            return waiting
        heir = waiting[0]
        self._waiting.discard(heir)
        for other in waiting[1:]:
            self._after[other] = heir
        return [heir]
