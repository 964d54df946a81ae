"""Eviction by expected saving: what is least likely to be asked for soon goes first.

The order learns, from the prompts themselves, after how many requests the end of a chain is asked
for again. From that follows for every age how many hits a page may still bring for each request
that it stays, at the best moment to stop waiting (a Gittins index). The least of these, times what
recomputing the page would cost, goes first.

Where memory holds everything that is likely to come back, this is close to LRU. Where it does not,
LRU drops each page just before its turn; this order keeps some pages long enough instead. Evicted
chains are remembered by a number for a while, so that what eviction itself prevents is learned
as well. Pages of one chain still go from the tail.
"""

from __future__ import annotations

import random
from bisect import bisect_right

from local_backend._typing import override
from local_backend.kvcache.evict import Candidates, Entry, Learner, Policy, Rank

# Bounds of the classes of age, three to each doubling.
_AGES = tuple(sorted({0, *(int(2 ** (step / 3)) for step in range(60))}))


class Cost(Policy):
    """The least expected saving goes first.

    Args:
        sample: Candidates looked at for each eviction.
        depth_pages: Page at which a token costs twice what the first one costs, since attention
            grows with the position; 0 where all cost the same.
        seed: Of the drawing of candidates.
    """

    name = "cost"
    is_ranked = False

    def __init__(self, sample: int = 32, depth_pages: int = 0, seed: int = 0) -> None:
        self.sample = sample
        self.depth_pages = depth_pages
        self.seed = seed

    @override
    def rank(self, entry: Entry, start: int, pages: int) -> Rank:
        raise NotImplementedError("this order depends on the time of asking")

    @override
    def make_queue(self) -> Candidates:
        return CostQueue(self)


class ReuseTimes:
    """How long it takes until the end of a chain is asked for again.

    Args:
        period: Uses between two computations of the index.
        decay: What is left of old observations after each.
        enough: Observations below which there is no index.
    """

    def __init__(self, period: int = 256, decay: float = 0.995, enough: int = 100) -> None:
        self._period = period
        self._decay = decay
        self._enough = enough
        self._seen = [0.0] * len(_AGES)
        self._uses = 0.0
        self._count = 0
        self.index: list[float] | None = None

    def used(self) -> None:
        """The end of a chain is idle from now on."""
        self._uses += 1
        self._count += 1
        if self._count % self._period == 0 and sum(self._seen) >= self._enough:
            self._compute()

    def reused(self, age: int) -> None:
        """It was asked for again after so long."""
        self._seen[bisect_right(_AGES, age) - 1] += 1

    def at(self, age: int) -> float:
        """Hits to be expected for each unit of time from this age on."""
        if self.index is None:
            return -float(age)
        return self.index[bisect_right(_AGES, age) - 1]

    def _compute(self) -> None:
        total = max(self._uses, sum(self._seen))
        share = [count / total for count in self._seen]
        alive = [1.0]
        for part in share:
            alive.append(alive[-1] - part)
        index = []
        for age in range(len(_AGES)):
            hits = time = best = 0.0
            for later in range(age, len(_AGES) - 1):
                hits += share[later]
                span = _AGES[later + 1] - _AGES[later]
                time += span * (alive[later] + alive[later + 1]) / 2
                if time > 0:
                    best = max(best, hits / time)
            index.append(best)
        self.index = index
        self._seen = [count * self._decay for count in self._seen]
        self._uses *= self._decay


class CostQueue(Learner):
    """Candidates in no order; a few are drawn and the least valuable of them goes.

    Args:
        policy: With the parameters.
        remembered: Evicted chains that are remembered.
    """

    def __init__(self, policy: Cost, remembered: int = 65_536) -> None:
        self.policy = policy
        self._sample = policy.sample
        self.times = ReuseTimes()
        self._slope = 1 / policy.depth_pages if policy.depth_pages else 0.0
        self._remembered = remembered
        self._random = random.Random(policy.seed)  # noqa: S311 - no secret depends on it
        self._entries: list[Entry] = []
        self._starts: list[int] = []
        self._gone: dict[int, int] = {}
        self._chosen: Entry | None = None

    @override
    def __len__(self) -> int:
        return len(self._entries)

    @override
    def push(self, entry: Entry, start: int, pages: int, now: int) -> None:
        self._entries.append(entry)
        self._starts.append(start)
        entry.ticket = len(self._entries)
        if entry.stamp == now:
            self.times.used()

    @override
    def discard(self, entry: Entry) -> None:
        place = entry.ticket - 1
        if place < 0:
            return
        entry.ticket = 0
        last, start = self._entries.pop(), self._starts.pop()
        if last is not entry:
            self._entries[place], self._starts[place] = last, start
            last.ticket = place + 1

    @override
    def first(self, now: int) -> Entry | None:
        count = len(self._entries)
        if not count:
            return None
        best: tuple[float, int] | None = None
        draw = self._random.random
        for number in range(min(count, self._sample)):
            place = number if count <= self._sample else int(draw() * count)
            entry = self._entries[place]
            value = self.times.at(now - entry.stamp)
            value *= 1 + self._slope * self._starts[place] if value > 0 else 1
            if best is None or (value, entry.stamp) < best:
                best = (value, entry.stamp)
                self._chosen = entry
        return self._chosen

    @override
    def pop(self) -> None:
        if self._chosen is not None:
            self.discard(self._chosen)
            self._chosen = None

    @override
    def reused(self, entry: Entry, now: int) -> None:
        self.times.reused(now - entry.stamp)

    @override
    def gone(self, name: bytes, entry: Entry) -> None:
        self._gone[hash(name)] = entry.stamp
        if len(self._gone) > self._remembered:
            del self._gone[next(iter(self._gone))]

    @override
    def came(self, name: bytes, now: int) -> None:
        stamp = self._gone.pop(hash(name), None)
        if stamp is not None:
            self.times.reused(now - stamp)
