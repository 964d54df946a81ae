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
from collections.abc import Sequence

from local_backend._typing import override
from local_backend.kvcache.evict import Candidates, Entry, Learner, Policy, Rank

# Bounds of the classes of age, three to each doubling.
_AGES = tuple(sorted({0, *(int(2 ** (step / 3)) for step in range(60))}))
# Ages below this are looked up in a list.
_NEAR = 1 << 13


class Cost(Policy):
    """The least expected saving goes first.

    Args:
        sample: Candidates looked at for each eviction, at least, evenly spread over them.
        depth_pages: Page at which a token costs twice what the first one costs, since attention
            grows with the position; 0 where all cost the same.
        seed: Of the drawing of the first candidate.
    """

    name = "cost"
    is_ranked = False

    def __init__(self, sample: int = 24, depth_pages: int = 0, seed: int = 0) -> None:
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
        self._near: list[float] = []
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

    def at(self, ages: Sequence[int]) -> list[float]:
        """Hits to be expected for each unit of time from each of some ages on."""
        index, near = self.index, self._near
        if index is None:
            return [-float(age) for age in ages]
        if max(ages) < _NEAR:
            return [near[age] for age in ages]
        return [index[bisect_right(_AGES, age) - 1] for age in ages]

    def _compute(self) -> None:
        total = max(self._uses, sum(self._seen))
        times, hits = [0.0], [0.0]
        alive = 1.0
        for age, count in enumerate(self._seen[:-1]):
            share = count / total
            times.append(times[-1] + (_AGES[age + 1] - _AGES[age]) * (alive - share / 2))
            hits.append(hits[-1] + share)
            alive -= share
        self.index = _steepest(times, hits)
        self._near = []
        for value, first, last in zip(self.index, _AGES, _AGES[1:], strict=False):
            self._near += [value] * (min(last, _NEAR) - first)
        self._seen = [count * self._decay for count in self._seen]
        self._uses *= self._decay


def _steepest(times: Sequence[float], hits: Sequence[float]) -> list[float]:
    """For each point of a rising line, the steepest way to a later one; never below 0.

    The later points that can be reached most steeply form a hull, which is built from the end.
    """
    found = [0.0] * len(times)
    hull = [len(times) - 1]
    for point in range(len(times) - 2, -1, -1):
        while True:
            ahead = hull[-1]
            width = times[ahead] - times[point]
            slope = (hits[ahead] - hits[point]) / width if width > 0 else 0.0
            if len(hull) == 1 or slope > found[ahead]:
                break
            hull.pop()  # from here the way to the one behind it is as steep
        found[point] = max(slope, 0.0)
        hull.append(point)
    return found


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
        self._stamps: list[int] = []
        self._starts: list[int] = []
        self._gone: dict[int, int] = {}
        self._chosen: Entry | None = None

    @override
    def __len__(self) -> int:
        return len(self._entries)

    @override
    def push(self, entry: Entry, start: int, pages: int, now: int) -> None:
        self._entries.append(entry)
        self._stamps.append(entry.stamp)
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
        last, stamp, start = self._entries.pop(), self._stamps.pop(), self._starts.pop()
        if last is not entry:
            self._entries[place], self._stamps[place], self._starts[place] = last, stamp, start
            last.ticket = place + 1

    @override
    def first(self, now: int) -> Entry | None:
        count = len(self._entries)
        if not count:
            return None
        stride = max(1, count // self._sample)
        begin = int(self._random.random() * stride)
        stamps = self._stamps[begin::stride]
        values = self.times.at([now - stamp for stamp in stamps])
        if self._slope:
            starts = self._starts[begin::stride]
            values = [
                value * (1 + self._slope * start) if value > 0 else value
                for value, start in zip(values, starts, strict=True)
            ]
        least = min(values)
        oldest = min([s for s, value in zip(stamps, values, strict=True) if value == least])
        # Equal stamps have equal values, unless the place in the prompt counts too.
        place = stamps.index(oldest)
        while values[place] != least:
            place = stamps.index(oldest, place + 1)
        self._chosen = self._entries[begin + stride * place]
        return self._chosen

    @override
    def pop(self) -> None:
        if self._chosen is not None:
            self.discard(self._chosen)
            self._chosen = None

    @override
    def earliest(self, now: int) -> int:
        return 0

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
