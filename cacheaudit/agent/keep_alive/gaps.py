"""How likely it is that a pause ends in time, learned from the pauses that were.

A pause runs from the start of a request to the start of the next one in its lane. Those that have
not ended yet say something too: they lasted at least that long.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

_KEPT: Final = 2_000


class Gaps:
    """Pauses of one kind, newest first to count.

    Args:
        prior: How likely a pause is to end before the next refresh is due, before anything is
            observed.
        weight: How many observed pauses the prior counts as.
    """

    def __init__(self, prior: float, weight: float = 8.0) -> None:
        self._prior = prior
        self._weight = weight
        self._ended: list[float] = []
        self._open: list[float] = []
        self._order: deque[tuple[float, bool]] = deque()

    def __len__(self) -> int:
        return len(self._order)

    def add(self, seconds: float, *, ended: bool = True) -> None:
        """Take note of a pause.

        Args:
            seconds: How long it lasted, or has lasted so far.
            ended: A request ended it.
        """
        if seconds < 0:
            return
        insort(self._ended if ended else self._open, seconds)
        self._order.append((seconds, ended))
        if len(self._order) > _KEPT:
            old, was_ended = self._order.popleft()
            (self._ended if was_ended else self._open).remove(old)

    def ends_within(self, after: float, until: float, window: float) -> float:
        """Return P(a pause ends in (``after``, ``until``], given that it lasted over ``after``).

        Of the pauses that lasted that long, those that are still open inside the span are not
        counted; the prior counts as ``weight`` more.

        Args:
            after: Seconds.
            until: Seconds.
            window: Seconds between two refreshes, which the prior is about.
        """
        if until <= after:
            return 0.0
        ended = _over(self._ended, after) - _over(self._ended, until)
        at_risk = _over(self._ended, after) + _over(self._open, until)
        windows, rest = divmod(until - after, window)
        prior = 1.0 - (1.0 - self._prior) ** int(windows) * (1.0 - self._prior * rest / window)
        total = at_risk + self._weight
        return prior if not total else (ended + self._weight * prior) / total

    def survival(self, points: Sequence[float], window: float) -> list[float]:
        """Return P(a pause lasts over each point, given that it lasts over the first).

        Args:
            points: Seconds, rising.
            window: Seconds between two refreshes, which the prior is about.
        """
        found = [1.0]
        for a, b in pairwise(points):
            found.append(found[-1] * (1 - self.ends_within(a, b, window)))
        return found


def _over(values: list[float], limit: float) -> int:
    return len(values) - bisect_right(values, limit)


def pauses(
    starts: Iterable[tuple[float, bool]], now: float | None = None
) -> Iterable[tuple[float, bool, bool]]:
    """Yield the pauses of one lane: seconds, whether tools ran, whether it has ended.

    Args:
        starts: Start of every request in order, and whether it asked for tools.
        now: The present moment, for the pause that is still open.
    """
    before: tuple[float, bool] | None = None
    for start, runs in starts:
        if before is not None and start > before[0]:
            yield start - before[0], before[1], True
        before = (start, runs)
    if before is not None and now is not None and now > before[0]:
        yield now - before[0], before[1], False
