"""Which lanes of a session share a row of the timeline, and how tall each row is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cacheaudit.report import format as fmt
from cacheaudit.report.figures import Slot

_OWN_ROWS = 4
_LARGE = 0.15
_PACKED_ROWS = 3


class Row(msgspec.Struct):
    """One row: one lane, or several small ones beside one another."""

    lanes: list[str]
    tall: int
    calls: int = 0
    end: float = 0.0

    @property
    def name(self) -> str:
        """What stands above it."""
        who = self.lanes[0] if len(self.lanes) == 1 else f"{len(self.lanes):,} lanes"
        return f"{who} · {fmt.plural(self.calls, 'call')}"


class _Lane(msgspec.Struct):
    name: str
    calls: int
    start: float
    end: float


def rows_of(slots: Sequence[Slot], xs: Sequence[float], pitch: float) -> list[Row]:
    """Share lanes out among rows: few get one each; of many, small ones are put together."""
    lanes: dict[str, _Lane] = {}
    for slot, x in zip(slots, xs, strict=True):
        lane = lanes.get(slot.lane)
        if lane is None:
            lane = lanes[slot.lane] = _Lane(slot.lane, 0, x, x)
        lane.calls += slot.calls
        lane.start, lane.end = min(lane.start, x), max(lane.end, x)
    every = list(lanes.values())
    whole = sum(lane.calls for lane in every)
    if len(every) <= _OWN_ROWS:
        return [Row([lane.name], _tall(lane, whole, len(every)), lane.calls) for lane in every]
    large = [lane for lane in every if lane.calls >= whole * _LARGE][:2] or every[:1]
    small = [lane for lane in every if lane not in large]
    own = [Row([lane.name], 96, lane.calls) for lane in large]
    return own + _packed(sorted(small, key=lambda lane: lane.start), pitch)


def _tall(lane: _Lane, whole: int, lanes: int) -> int:
    if lanes == 1:
        return 126
    return 84 if lane.calls >= whole * _LARGE else 48


def _packed(lanes: Sequence[_Lane], pitch: float) -> list[Row]:
    """Put each lane into the first row that is free, or free first."""
    rows: list[Row] = []
    for lane in lanes:
        free = next((row for row in rows if row.end < lane.start), None)
        if free is None and len(rows) < _PACKED_ROWS:
            free = Row([], 48)
            rows.append(free)
        if free is None:
            free = min(rows, key=lambda row: row.end)
        free.lanes.append(lane.name)
        free.calls += lane.calls
        free.end = max(free.end, lane.end + pitch)
    return rows
