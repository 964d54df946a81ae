"""Which idle entry goes first. Only ends of chains are candidates, so tails go before heads."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import ClassVar, Protocol

from local_backend._typing import override

Rank = float | tuple[float, ...]


class Entry:
    """What the cache knows of one stretch of cached pages.

    Attributes:
        lock: Pins that protect it.
        stamp: Logical time of its last use.
        hits: How often a request found it.
        ticket: Its valid place in the queue of candidates; 0 for none.
    """

    __slots__ = ("hits", "lock", "stamp", "ticket")

    def __init__(self, stamp: int, hits: int = 0, lock: int = 0) -> None:
        self.lock = lock
        self.stamp = stamp
        self.hits = hits
        self.ticket = 0


class Policy(Protocol):
    """An order of eviction: the lowest rank goes first."""

    name: ClassVar[str]

    def rank(self, entry: Entry, start: int, pages: int) -> Rank:
        """The rank of an entry that becomes a candidate.

        Args:
            entry: The candidate.
            start: Pages before it in its chain.
            pages: Pages that it holds.
        """
        ...

    def evicted(self, rank: Rank) -> None:
        """Take note that a candidate of this rank went."""


class Lru(Policy):
    """The least recently used goes first."""

    name = "lru"

    @override
    def rank(self, entry: Entry, start: int, pages: int) -> Rank:
        return entry.stamp

    @override
    def evicted(self, rank: Rank) -> None:
        return None


class Lfu(Policy):
    """The least often hit goes first; among equals the least recently used."""

    name = "lfu"

    @override
    def rank(self, entry: Entry, start: int, pages: int) -> Rank:
        return (entry.hits, entry.stamp)

    @override
    def evicted(self, rank: Rank) -> None:
        return None


class LeafQueue:
    """Candidates in the order of a policy; outdated places are skipped when they come up."""

    __slots__ = ("_heap", "_live", "_tickets", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._heap: list[tuple[Rank, int, Entry]] = []
        self._tickets = 0
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def push(self, entry: Entry, start: int, pages: int) -> None:
        """Make an idle end of a chain a candidate."""
        self._tickets = ticket = self._tickets + 1
        entry.ticket = ticket
        self._live += 1
        heap = self._heap
        heapq.heappush(heap, (self.policy.rank(entry, start, pages), ticket, entry))
        if len(heap) > 4 * self._live + 64:
            self._heap = [item for item in heap if item[2].ticket == item[1]]
            heapq.heapify(self._heap)

    def discard(self, entry: Entry) -> None:
        """It is in use again, no longer an end, or gone."""
        if entry.ticket:
            entry.ticket = 0
            self._live -= 1

    def first(self) -> Entry | None:
        """The candidate to evict next."""
        heap = self._heap
        while heap:
            _, ticket, entry = heap[0]
            if entry.ticket == ticket:
                return entry
            heapq.heappop(heap)
        return None

    def pop(self) -> None:
        """Remove the candidate that ``first`` named, since it was evicted."""
        rank, _, entry = heapq.heappop(self._heap)
        self.policy.evicted(rank)
        entry.ticket = 0
        self._live -= 1


POLICIES: dict[str, Callable[[], Policy]] = {"lru": Lru, "lfu": Lfu}


def policy_named(name: str) -> Policy:
    """A fresh policy by its name.

    Raises:
        ValueError: There is none of that name.
    """
    maker = POLICIES.get(name)
    if maker is None:
        raise ValueError(f"no eviction policy {name!r}; there are {', '.join(sorted(POLICIES))}")
    return maker()
