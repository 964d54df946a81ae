"""Adds up one side of a comparison, task by task."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Final

from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.common import Moments, open_corpus, require_readable
from cacheaudit.jobs.inputs import Inputs, Progress
from cacheaudit.jobs.tasking.billed import is_open
from cacheaudit.jobs.tasking.times import CallTimes, call_times
from cacheaudit.model.call import Call, Session
from cacheaudit.model.money import ZERO
from cacheaudit.model.usage import FLAG_OUTPUT_LOWER_BOUND, Usage, add
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.cost import UNDATED, price_call
from cacheaudit.pricing.equivalents import call_input_equivalents

# The shortest lifetime that is on sale.
PAUSE_S: Final = 300.0
# Requests beside the conversation: they do not tell when it paused.
_ASIDE: Final = frozenset({"keep_alive", "warm_up", "probe", "compaction"})
_PARTS: Final = ("total_input", "cache_read", "cache_write", "output")


class Task:
    """Everything that one task took on one side."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sessions: dict[str, None] = {}
        self.calls = 0
        self.cost = ZERO
        self.billed = 0
        self.unpriced = 0
        self.equivalents = ZERO
        self.unweighed = 0
        self.sums: dict[str, int | None] = dict.fromkeys(_PARTS)
        self.untold: set[str] = set()
        self.unsplit = 0
        self.moments = Moments()
        self.untimed = 0
        self.durations: list[float] = []
        self.times: dict[str, list[float]] = {name: [] for name in CallTimes.__struct_fields__}
        self.generated = (0, 0.0)
        self.phases: dict[str, tuple[int, int]] = {}
        self.outcome: str | None = None
        self._decided_at = float("-inf")

    @property
    def known_cost(self) -> Decimal | None:
        """Cost of all calls; ``None`` where one of them has no price."""
        return self.cost if self.billed and not self.unpriced else None

    @property
    def known_equivalents(self) -> Decimal | None:
        """Input equivalents of all calls; ``None`` where one of them cannot be weighed."""
        return self.equivalents if self.billed and not self.unweighed else None

    @property
    def seconds(self) -> float | None:
        """From the start of the first call to the end of the last; ``None`` where one is open."""
        first, last = self.moments.first, self.moments.last
        if self.untimed or first is None or last is None:
            return None
        return last - first

    @property
    def model_seconds(self) -> float | None:
        """Sum of all calls' durations."""
        return sum(self.durations) if self.durations and not self.untimed else None

    def told(self, part: str) -> int | None:
        """Tokens of a part; ``None`` where a call does not tell: sides would not be alike."""
        return None if part in self.untold else self.sums[part]

    @property
    def split(self) -> tuple[int, int] | None:
        """Tokens read and sent; ``None`` where a call does not tell."""
        read, sent = self.sums["cache_read"], self.sums["total_input"]
        return None if self.unsplit or read is None or not sent else (read, sent)

    def add(
        self, call: Call, cost: Decimal | None, equivalents: Decimal | None, phase: str
    ) -> None:
        """Add a call."""
        self.calls += 1
        self.sessions[call.session] = None
        usage = call.usage
        if usage is not None:
            self._add_usage(usage, cost, equivalents)
            self._add_phase(usage, phase)
        self._add_times(call)
        at = call.at if call.at is not None else self._decided_at
        if call.outcome is not None and at >= self._decided_at:
            self.outcome, self._decided_at = call.outcome, at

    def _add_usage(self, usage: Usage, cost: Decimal | None, equivalents: Decimal | None) -> None:
        self.billed += 1
        for name in _PARTS:
            tokens = getattr(usage, name)
            self.sums[name] = add(self.sums[name], tokens)
            if tokens is None:
                self.untold.add(name)
        if usage.cache_read is None or usage.total_input is None:
            self.unsplit += 1
        if cost is None:
            self.unpriced += 1
        else:
            self.cost += cost
        if equivalents is None:
            self.unweighed += 1
        else:
            self.equivalents += equivalents

    def _add_phase(self, usage: Usage, phase: str) -> None:
        if usage.cache_read is not None and usage.total_input is not None:
            read, sent = self.phases.get(phase, (0, 0))
            self.phases[phase] = read + usage.cache_read, sent + usage.total_input

    def _add_times(self, call: Call) -> None:
        found = call_times(call)
        for name, values in self.times.items():
            value = getattr(found, name)
            if value is not None:
                values.append(value)
        output = None if call.usage is None else call.usage.output
        if output and found.generation:
            tokens, seconds = self.generated
            self.generated = tokens + output, seconds + found.generation
        start, end = call.started_at, call.ended_at
        if start is None or end is None or end < start:
            self.untimed += 1
            return
        self.moments.add(start)
        self.moments.add(end)
        self.durations.append(end - start)


class Phases:
    """Tells the first use of a lane, going on, and coming back after a pause."""

    def __init__(self) -> None:
        self._last: dict[str, float | None] = {}

    def of(self, call: Call) -> str:
        """Return ``first``, ``continuous``, ``after_pause`` or ``unknown``."""
        if call.purpose in _ASIDE:
            return "aside"
        known = call.lane in self._last
        before, self._last[call.lane] = self._last.get(call.lane), call.started_at
        if not known:
            return "first"
        if before is None or call.started_at is None:
            return "unknown"
        return "after_pause" if call.started_at - before > PAUSE_S else "continuous"


class Side:
    """One side: its tasks, and what it is made of."""

    def __init__(self, path: Path, book: PriceBook) -> None:
        self.path = path
        self._book = book
        self.tasks: dict[str, Task] = {}
        self.sessions: dict[str, Task] = {}
        self.models: Counter[str] = Counter()
        self.providers: Counter[str] = Counter()
        self.clients: Counter[str] = Counter()
        self.purposes: Counter[str] = Counter()
        self.prices: dict[str, set[str]] = {}
        self.ttls: set[str] = set()
        self.sources: dict[str, int] = {}
        self.moments = Moments()
        self.calls = 0
        self.session_count = 0
        self.cost = ZERO
        self.unpriced = 0
        self.undated = 0
        self.low_output = 0
        self.without_task = 0
        self.most_at_once = 0
        self.without_usage = 0
        self._where: dict[str, tuple[list[Task], Decimal | None]] = {}

    @property
    def price_ids(self) -> list[str]:
        """Ids of the price rows used."""
        return sorted({row for rows in self.prices.values() for row in rows})

    def read(self, inputs: Inputs, progress: Progress) -> None:
        """Read everything.

        Raises:
            UsageError: The path does not exist.
            UnknownFormatError: It holds no recorded session.
        """
        problems = Problems()
        corpus = open_corpus(inputs, problems, progress)
        for session in corpus.sessions():
            self._take(session)
            for amendment in corpus.amendments:
                self._amend(amendment.call, amendment.more_output)
            corpus.amendments.clear()
        require_readable(corpus, problems)
        self.sources = dict(sorted(corpus.read_sources.items()))

    def _take(self, session: Session) -> None:
        if not session.calls:
            return
        self.session_count += 1
        named = {call.task for call in session.calls if call.task}
        own = self.sessions.setdefault(session.id, Task(session.id))
        spans: list[tuple[float, int]] = []
        phases = Phases()
        for call in session.calls:
            # A session of one task is all that task's, its subagents and summaries too.
            task = call.task or (next(iter(named)) if len(named) == 1 else None)
            holders = [own]
            if task is not None:
                holders.append(self.tasks.setdefault(task, Task(task)))
            elif named:
                self.without_task += 1
            self._add(call, holders, phases.of(call))
            if call.started_at is not None and call.ended_at is not None:
                spans += [(call.started_at, 1), (call.ended_at, -1)]
        self.most_at_once = max(self.most_at_once, _most_at_once(spans))

    def _add(self, call: Call, holders: list[Task], phase: str) -> None:
        self.calls += 1
        self.models[call.model or "not known"] += 1
        self.providers[f"{call.provider or 'not known'}/{call.surface or '-'}"] += 1
        self.clients[call.client or "not recorded"] += 1
        self.purposes[call.purpose] += 1
        cost = self._price(call)
        weight = None if call.usage is None else call_input_equivalents(call, self._book)
        for holder in holders:
            holder.add(call, cost, weight, phase)
        self._where[call.id] = (holders, cost)
        at = None if call.relative_time else call.at
        if at is not None:
            self.moments.add(at)

    def _price(self, call: Call) -> Decimal | None:
        usage = call.usage
        if usage is None:
            self.without_usage += is_open(call)
            return None
        bill = price_call(call, self._book)
        self.prices.setdefault(call.model or "not known", set()).update(bill.cards)
        if UNDATED in bill.flags:
            self.undated += 1
        if FLAG_OUTPUT_LOWER_BOUND in usage.flags:
            self.low_output += 1
        for ttl in ("5m", "1h", "30m", "12h"):
            if getattr(usage, f"write_{ttl}"):
                self.ttls.add(ttl)
        if bill.amount is None:
            self.unpriced += 1
        else:
            self.cost += bill.amount
        return bill.amount

    def _amend(self, call: Call, more: int) -> None:
        """Correct a call that was added already: a later copy had more output."""
        holders, old = self._where.get(call.id, ([], None))
        new = price_call(call, self._book).amount if holders else None
        difference = new - old if new is not None and old is not None else ZERO
        self.cost += difference
        for holder in holders:
            holder.cost += difference
            holder.sums["output"] = add(holder.sums["output"], more)


def _most_at_once(spans: list[tuple[float, int]]) -> int:
    """Count the calls that ran at the same time at most; an end comes before a start."""
    running = most = 0
    for _, step in sorted(spans):
        running += step
        most = max(most, running)
    return most
