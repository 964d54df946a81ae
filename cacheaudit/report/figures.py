"""Folds a long row of calls into a figure of bounded size, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

import msgspec

from cacheaudit.model.clock import parse_time
from cacheaudit.model.money import ZERO, decimal
from cacheaudit.report.result import CallRow, Group

LONG = ("1h", "12h")
_LEVELS = "▁▂▃▄▅▆▇█"
_GAP = "·"


class Sparkline:
    """The read ratio over a session's calls, in at most ``width`` characters.

    Each character stands for about the same number of neighbouring calls; a dot means that
    nothing is known of them.
    """

    def __init__(self, width: int) -> None:
        self._limit = width * 2
        self._width = width
        self._each = 1
        self._filled = 0
        self._buckets: list[list[int]] = []

    def add(self, read: int | None, total: int | None) -> None:
        """Take one call."""
        if self._filled == 0:
            if len(self._buckets) == self._limit:
                self._halve()
            self._buckets.append([0, 0])
        self._filled = (self._filled + 1) % self._each
        if read is not None and total:
            self._buckets[-1][0] += read
            self._buckets[-1][1] += total

    def _halve(self) -> None:
        pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
        self._buckets = [[a[0] + b[0], a[1] + b[1]] for a, b in pairs]
        self._each *= 2

    def draw(self) -> str:
        """Return the characters."""
        number = len(self._buckets)
        width = min(self._width, number)
        columns = [[0, 0] for _ in range(width)]
        for index, (read, total) in enumerate(self._buckets):
            column = columns[index * width // number]
            column[0] += read
            column[1] += total
        return "".join(_level(read, total) for read, total in columns)


def _level(read: int, total: int) -> str:
    if not total:
        return _GAP
    return _LEVELS[min(7, max(0, read * 8 // total))]


def sparklines(
    calls: Iterable[CallRow], sessions: Iterable[str], width: int
) -> dict[str, Sparkline]:
    """Draw the read ratio of some sessions in one pass over all calls."""
    lines = {session: Sparkline(width) for session in sessions}
    if lines:
        for call in calls:
            line = lines.get(call.session)
            if line is not None:
                line.add(call.cache_read, call.total_input)
    return lines


def dearest(groups: Sequence[Group], number: int) -> list[Group]:
    """Choose the groups that cost most: by money, else by input."""

    def weight(group: Group) -> tuple[object, int]:
        cost = group.totals.cost.computed or group.totals.cost.reported
        return (-decimal(cost) if cost else ZERO, -(group.totals.total_input or 0))

    return sorted(groups, key=weight)[:number]


class Slot(msgspec.Struct):
    """One bar of the timeline: one call, or several neighbouring ones of a lane.

    Figures are sums. ``long`` is the part of ``write`` that lives for an hour or longer;
    ``unsplit`` counts input of calls whose parts are not known; ``money`` is the cost by kind of
    token; ``exact`` and ``off`` count calls whose predicted read is the reported one, or not.
    """

    index: int
    lane: str
    calls: int = 0
    read: int = 0
    write: int = 0
    long: int = 0
    uncached: int = 0
    unsplit: int = 0
    output: int = 0
    first_call: str = ""
    started_at: str | None = None
    at: float | None = None
    alive: int | None = None
    marks: tuple[int, ...] = ()
    signs: tuple[str, ...] = ()
    number: int = 0
    cost: Decimal = ZERO
    money: dict[str, Decimal] = {}
    exact: int = 0
    off: int = 0
    predicted: int = 0
    reported: int = 0

    @property
    def mean_input(self) -> int:
        """Input tokens of an average call of the bar."""
        return (self.read + self.write + self.uncached + self.unsplit) // max(1, self.calls)

    @property
    def mean_cost(self) -> Decimal:
        """Cost of an average call of the bar."""
        return self.cost / max(1, self.calls)


_SUMMED = (
    "calls",
    "read",
    "write",
    "long",
    "uncached",
    "unsplit",
    "output",
    "cost",
    "exact",
    "off",
    "predicted",
    "reported",
)


class Timeline:
    """Bars of one session, at most ``limit`` of them.

    Where there are more calls, neighbours of the same lane share a bar; ``each`` says how many.
    """

    def __init__(self, limit: int) -> None:
        self._limit = max(2, limit)
        self.each = 1
        self.calls = 0
        self._slots: dict[tuple[int, str], Slot] = {}

    def add(
        self,
        call: CallRow,
        marks: tuple[int, ...] = (),
        number: int = 0,
        signs: tuple[str, ...] = (),
        money: Mapping[str, Decimal] | None = None,
    ) -> None:
        """Take the next call.

        Args:
            call: The call.
            marks: Numbers of the findings that name it.
            number: Its place in the result.
            signs: What else happened at it.
            money: Its cost by kind of token, where it can be taken apart.
        """
        key = (self.calls // self.each, call.lane)
        slot = self._slots.get(key)
        if slot is None:
            if len(self._slots) >= self._limit:
                self._halve()
                key = (self.calls // self.each, call.lane)
                slot = self._slots.get(key)
            if slot is None:
                slot = self._slots[key] = Slot(
                    index=key[0],
                    lane=call.lane,
                    first_call=call.id,
                    started_at=call.started_at,
                    at=parse_time(call.started_at),
                    number=number or self.calls + 1,
                )
        self.calls += 1
        slot.marks = (*slot.marks, *marks)
        slot.signs = (*slot.signs, *signs)
        slot.alive = call.alive_seconds
        _count(slot, call)
        _price(slot, call, money)
        _compare(slot, call)

    def _halve(self) -> None:
        self.each *= 2
        merged: dict[tuple[int, str], Slot] = {}
        for (index, lane), slot in self._slots.items():
            key = (index // 2, lane)
            other = merged.get(key)
            if other is None:
                slot.index = key[0]
                merged[key] = slot
                continue
            for name in _SUMMED:
                setattr(other, name, getattr(other, name) + getattr(slot, name))
            other.marks = (*other.marks, *slot.marks)
            other.signs = (*other.signs, *slot.signs)
            for kind, amount in slot.money.items():
                other.money[kind] = other.money.get(kind, ZERO) + amount
        self._slots = merged

    @property
    def slots(self) -> list[Slot]:
        """The bars, in order."""
        return list(self._slots.values())

    @property
    def lanes(self) -> list[str]:
        """The lanes, in order of first appearance."""
        return list(dict.fromkeys(slot.lane for slot in self._slots.values()))


def _count(slot: Slot, call: CallRow) -> None:
    slot.calls += 1
    slot.output += call.output or 0
    slot.write += call.cache_write or 0
    if call.writes:
        slot.long += sum(call.writes.get(ttl, 0) for ttl in LONG)
    if call.cache_read is None and call.uncached_input is None:
        slot.unsplit += max(0, (call.total_input or 0) - (call.cache_write or 0))
        return
    slot.read += call.cache_read or 0
    slot.uncached += call.uncached_input or 0


def _price(slot: Slot, call: CallRow, money: Mapping[str, Decimal] | None) -> None:
    if call.cost is None:
        return
    cost = decimal(call.cost)
    slot.cost += cost
    for kind, amount in (money or {"other": cost}).items():
        slot.money[kind] = slot.money.get(kind, ZERO) + amount


def _compare(slot: Slot, call: CallRow) -> None:
    predicted = None if call.predicted is None else call.predicted.cache_read
    if predicted is None or call.cache_read is None:
        return
    slot.predicted += predicted
    slot.reported += call.cache_read
    if predicted == call.cache_read:
        slot.exact += 1
    else:
        slot.off += 1
