"""Adds calls up by task, session, lane and purpose; every sum is made of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from cacheaudit.ingest.corpus import Amendment
from cacheaudit.jobs.common import Moments
from cacheaudit.jobs.tally import Bucket, Tally, merged
from cacheaudit.jobs.tasking.billed import is_open
from cacheaudit.jobs.tasking.times import TimeSums
from cacheaudit.model.call import Call, Session
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.card import RateCard


class Place(msgspec.Struct, frozen=True):
    """Where a call belongs."""

    task: str | None
    session: str
    lane: str
    purpose: str


class TaskSums:
    """What is known of one task beside tokens and money."""

    def __init__(self) -> None:
        self.calls = self.failed = self.retries = self.without_usage = 0
        self.moments = Moments()
        self.times = TimeSums()
        self.outcome: str | None = None
        self._decided_at = float("-inf")

    def add(self, call: Call) -> None:
        """Add a call; of several outcomes the latest counts."""
        self.calls += 1
        self.failed += call.error is not None
        self.retries += call.attempt > 0
        self.without_usage += is_open(call)
        for at in (call.at, call.ended_at):
            if at is not None:
                self.moments.add(at)
        self.times.add(call)
        at = call.at if call.at is not None else self._decided_at
        if call.outcome is not None and at >= self._decided_at:
            self.outcome, self._decided_at = call.outcome, at

    @property
    def seconds(self) -> float | None:
        """From the first known moment to the last; ``None`` where there is none."""
        first, last = self.moments.first, self.moments.last
        return None if first is None or last is None else round(last - first, 6)


class Gathered:
    """Everything that was read.

    Args:
        book: Prices.

    Attributes:
        tasks: By name; ``None`` holds the calls that name no task.
        leaves: Token and money sums by place.
        counts: Calls by place, also those without usage.
    """

    def __init__(self, book: PriceBook) -> None:
        self.tally = Tally(book)
        self.tasks: dict[str | None, TaskSums] = {}
        self.leaves: dict[Place, Bucket] = {}
        self.counts: Counter[Place] = Counter()
        self.moments = Moments()
        self.sessions: set[str] = set()
        self._where: dict[str, Place] = {}
        self._more: dict[str, tuple[int, RateCard | None]] = {}

    def take(self, session: Session) -> None:
        """Add a session. One with a single task belongs to it as a whole, subagents included."""
        named = {call.task for call in session.calls if call.task}
        only = next(iter(named)) if len(named) == 1 else None
        for call in session.calls:
            self._add(call, call.task or only)

    def _add(self, call: Call, task: str | None) -> None:
        self.sessions.add(call.session)
        place = Place(task, call.session, call.lane, call.purpose)
        self.counts[place] += 1
        self.tasks.setdefault(task, TaskSums()).add(call)
        at = None if call.relative_time else call.at
        if at is not None:
            self.moments.add(at)
        usage = call.usage
        if usage is None:
            return
        bucket = self.leaves.setdefault(place, Bucket())
        self._where[call.id] = place
        self.tally.add(bucket, usage, call.provider, call.model, call.surface, at)
        if call.reported_cost is not None:
            self.tally.add_reported(bucket, call.reported_cost, call.currency)

    def amend(self, amendments: list[Amendment]) -> None:
        """Note that later copies of calls had more output; empties the list."""
        for amendment in amendments:
            call, usage = amendment.call, amendment.call.usage
            if usage is None:
                continue
            at = None if call.relative_time else call.at
            card = self.tally.card(usage, call.provider, call.model, call.surface, at)
            before = self._more.get(call.id, (0, None))[0]
            self._more[call.id] = before + amendment.more_output, card
        amendments.clear()

    def settle(self) -> None:
        """Correct the sums for later copies, once everything was read."""
        for name, found in self._more.items():
            place = self._where.get(name)
            if place is not None:
                self.tally.add_output(self.leaves[place], *found)
        self._more.clear()

    def by_task(self) -> dict[str | None, list[Place]]:
        """Return the places of every task."""
        found: dict[str | None, list[Place]] = {name: [] for name in self.tasks}
        for place in self.counts:
            found[place.task].append(place)
        return found

    def sums(self, places: Iterable[Place]) -> Bucket:
        """Add up tokens and money of some places."""
        return merged(self.leaves[place] for place in places if place in self.leaves)

    def by_purpose(self, places: Iterable[Place]) -> dict[str, Bucket]:
        """Add up tokens and money of some places by purpose."""
        found: dict[str, list[Place]] = {}
        for place in places:
            found.setdefault(place.purpose, []).append(place)
        return {purpose: self.sums(mine) for purpose, mine in found.items()}


def purposes(counts: Counter[Place], places: Iterable[Place]) -> dict[str, int]:
    """Count calls by purpose."""
    found: Counter[str] = Counter()
    for place in places:
        found[place.purpose] += counts[place]
    return dict(sorted(found.items()))
