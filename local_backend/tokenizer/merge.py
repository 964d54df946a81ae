"""Joins neighbouring pieces, the best pair first, until no pair can be joined."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import pairwise

# How soon a pair is joined: the lowest first; None for never.
Rank = Callable[[str, str], float | None]

_SHORT = 24


def merge(pieces: Sequence[str], rank: Rank) -> list[str]:
    """Join pieces.

    Of two pairs with the same rank the left one goes first.

    Args:
        pieces: In order; mostly single characters.
        rank: How soon a pair is joined.
    """
    if len(pieces) < 2:
        return list(pieces)
    return _by_scan(list(pieces), rank) if len(pieces) <= _SHORT else _by_heap(list(pieces), rank)


def _by_scan(pieces: list[str], rank: Rank) -> list[str]:
    """Words are short: looking at every pair again is quicker than keeping them in order."""
    ranks = [rank(a, b) for a, b in pairwise(pieces)]
    while True:
        best, place = None, -1
        for index, found in enumerate(ranks):
            if found is not None and (best is None or found < best):
                best, place = found, index
        if best is None:
            return pieces
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        del ranks[place]
        if place > 0:
            ranks[place - 1] = rank(pieces[place - 1], pieces[place])
        if place < len(ranks):
            ranks[place] = rank(pieces[place], pieces[place + 1])


def _by_heap(pieces: list[str], rank: Rank) -> list[str]:
    """For long runs: a heap of pairs, and links to the neighbours of each piece."""
    after = [*range(1, len(pieces)), -1]
    before = [*range(-1, len(pieces) - 1)]
    waiting: list[tuple[float, int, int, str, str]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right >= 0:
            found = rank(pieces[left], pieces[right])
            if found is not None:
                heapq.heappush(waiting, (found, left, right, pieces[left], pieces[right]))

    for index in range(len(pieces) - 1):
        offer(index, index + 1)
    while waiting:
        _, left, right, a, b = heapq.heappop(waiting)
        # A pair whose members have changed since is stale; a joined piece is empty.
        if after[left] != right or pieces[left] != a or pieces[right] != b:
            continue
        pieces[left], pieces[right] = a + b, ""
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
        after[right] = -1
        offer(before[left], left)
        offer(left, after[left])
    return [piece for piece in pieces if piece]
