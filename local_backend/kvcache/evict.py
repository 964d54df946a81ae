"""Which idle entry goes first. Only ends of chains are candidates, so tails go before heads."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from typing import ClassVar

from local_backend._typing import override

Rank = float | tuple[float, ...]

# Later than any use.
_NEVER = 1 << 62


class Entry:
    """What the cache knows of one stretch of cached pages.

    Attributes:
        lock: Pins that protect it.
        stamp: Logical time of its last use.
        hits: How often a request found it.
        ticket: Its place among the candidates, the queue's own affair; 0 for none.
    """

    __slots__ = ("hits", "lock", "stamp", "ticket")

    def __init__(self, stamp: int, hits: int = 0, lock: int = 0) -> None:
        self.lock = lock
        self.stamp = stamp
        self.hits = hits
        self.ticket = 0


class Candidates(ABC):
    """The entries that may be evicted, and which of them is next.

    Attributes:
        policy: The order.
    """

    policy: Policy

    @abstractmethod
    def __len__(self) -> int:
        """Number of candidates."""

    @abstractmethod
    def push(self, entry: Entry, start: int, pages: int, now: int) -> None:
        """Make an idle end of a chain a candidate.

        Args:
            entry: The end.
            start: Pages before it in its chain.
            pages: Pages that it holds.
            now: Logical time.
        """

    @abstractmethod
    def discard(self, entry: Entry) -> None:
        """It is in use again, no longer an end, or gone. Nothing happens if it is no candidate."""

    @abstractmethod
    def first(self, now: int) -> Entry | None:
        """The candidate to evict next."""

    @abstractmethod
    def pop(self) -> None:
        """Remove the candidate that `first` named, since it was evicted."""

    @abstractmethod
    def earliest(self, now: int) -> int:
        """A last use before which an entry would be the first candidate, whatever else it is.

        Orders that do not go by last use alone know none: 0, since nothing was used before.
        """


class Learner(Candidates):
    """Candidates whose order depends on what happens in the cache."""

    @abstractmethod
    def reused(self, entry: Entry, now: int) -> None:
        """Take note that a candidate was asked for."""

    @abstractmethod
    def gone(self, name: bytes, entry: Entry) -> None:
        """Take note that a candidate was evicted; ``name`` is where it would begin again."""

    @abstractmethod
    def came(self, name: bytes, now: int) -> None:
        """Take note that a prompt brought something that may have been evicted."""


class Policy(ABC):
    """An order of eviction.

    Attributes:
        name: What a configuration calls it.
        is_ranked: Whether a candidate's rank stays what it was when it became one.
    """

    name: ClassVar[str]
    is_ranked: ClassVar[bool] = True

    @abstractmethod
    def rank(self, entry: Entry, start: int, pages: int) -> Rank:
        """The rank of an entry that becomes a candidate; the lowest goes first.

        Args:
            entry: The candidate.
            start: Pages before it in its chain.
            pages: Pages that it holds.
        """

    def make_queue(self) -> Candidates:
        """An empty queue in this order."""
        return LeafQueue(self)


class Lru(Policy):
    """The least recently used goes first."""

    name = "lru"

    @override
    def rank(self, entry: Entry, start: int, pages: int) -> Rank:
        return entry.stamp

    @override
    def make_queue(self) -> Candidates:
        return StampQueue(self)


class Lfu(Policy):
    """The least often hit goes first; among equals the least recently used."""

    name = "lfu"

    @override
    def rank(self, entry: Entry, start: int, pages: int) -> Rank:
        return (entry.hits, entry.stamp)


class LeafQueue(Candidates):
    """A heap of ranks; outdated places are skipped when they come up."""

    __slots__ = ("_heap", "_live", "_tickets", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._heap: list[tuple[Rank, int, Entry]] = []
        self._tickets = 0
        self._live = 0

    @override
    def __len__(self) -> int:
        return self._live

    @override
    def push(self, entry: Entry, start: int, pages: int, now: int) -> None:
        self._tickets = ticket = self._tickets + 1
        entry.ticket = ticket
        self._live += 1
        heap = self._heap
        heapq.heappush(heap, (self.policy.rank(entry, start, pages), ticket, entry))
        if len(heap) > 4 * self._live + 64:
            self._tidy()

    def _tidy(self) -> None:
        self._heap = [item for item in self._heap if item[2].ticket == item[1]]
        heapq.heapify(self._heap)

    @override
    def discard(self, entry: Entry) -> None:
        if entry.ticket:
            entry.ticket = 0
            self._live -= 1

    @override
    def first(self, now: int) -> Entry | None:
        heap = self._heap
        while heap:
            _, ticket, entry = heap[0]
            if entry.ticket == ticket:
                return entry
            heapq.heappop(heap)
        return None

    @override
    def pop(self) -> None:
        _, _, entry = heapq.heappop(self._heap)
        entry.ticket = 0
        self._live -= 1

    @override
    def earliest(self, now: int) -> int:
        return 0


class StampQueue(LeafQueue):
    """The same by last use alone, without asking a policy for each rank."""

    __slots__ = ()

    @override
    def push(self, entry: Entry, start: int, pages: int, now: int) -> None:
        self._tickets = entry.ticket = ticket = self._tickets + 1
        self._live += 1
        heap = self._heap
        heapq.heappush(heap, (entry.stamp, ticket, entry))
        if len(heap) > 4 * self._live + 64:
            self._tidy()

    @override
    def earliest(self, now: int) -> int:
        first = self.first(now)
        return _NEVER if first is None else first.stamp
