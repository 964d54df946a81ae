"""Where bars stand: side by side, or by time with long pauses shortened."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence

import msgspec

from cacheaudit.report.figures import Slot

LONG_GAP = 300.0
_PLOT = 900.0
_WIDEST, _NARROWEST = 44.0, 3.4
_FILL = 0.74
# A pause is drawn at most this many bars wide.
_LONGEST = 3.0


class Gap(msgspec.Struct, frozen=True):
    """A long time without a call: where it ends, and how long it was."""

    x: float
    seconds: float


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """Positions along the figure.

    Attributes:
        name: ``time`` or ``calls``.
        xs: Left edge of each bar, in the order of the slots.
        pitch: Room of one bar.
        bar: Width of one bar.
        width: Width of all.
        gaps: Pauses of five minutes and more.
    """

    name: str
    xs: tuple[float, ...]
    pitch: float
    bar: float
    width: float
    gaps: tuple[Gap, ...] = ()
    _times: tuple[float, ...] = ()
    _places: tuple[float, ...] = ()

    def at(self, moment: float) -> float:
        """Place of a moment; beyond the last call the scale of its neighbours goes on."""
        times, places = self._times, self._places
        after = bisect.bisect_right(times, moment)
        if after == 0:
            return places[0]
        if after == len(times):
            return min(self.width, places[-1] + self.pitch)
        start, end = times[after - 1], times[after]
        part = (moment - start) / (end - start) if end > start else 1.0
        return places[after - 1] + part * (places[after] - places[after - 1])


def by_calls(slots: Sequence[Slot]) -> Axis:
    """Put bars side by side in the order of the calls."""
    units = [float(slot.index) for slot in slots]
    return _scaled("calls", slots, units)


def by_time(slots: Sequence[Slot]) -> Axis | None:
    """Put bars where they belong in time; ``None`` where a time is missing.

    Calls of different lanes may stand above one another; those of one lane never overlap.
    """
    if len(slots) < 2 or any(slot.at is None for slot in slots):
        return None
    order = sorted(range(len(slots)), key=lambda n: (slots[n].at or 0.0, slots[n].index))
    gaps = [_apart(slots[a], slots[b]) for a, b in itertools.pairwise(order)]
    usual = _usual([gap for gap in gaps if gap > 0])
    units = [0.0] * len(slots)
    last: dict[str, float] = {slots[order[0]].lane: 0.0}
    place = 0.0
    for number, gap in zip(order[1:], gaps, strict=True):
        lane = slots[number].lane
        place += _advance(gap, usual)
        if lane in last:
            place = max(place, last[lane] + 1.0)
        last[lane] = units[number] = place
    return _scaled("time", slots, units)


def _apart(a: Slot, b: Slot) -> float:
    return (b.at or 0.0) - (a.at or 0.0)


def _usual(gaps: Sequence[float]) -> float:
    """Gap that gets the room of one bar: longer than two of three."""
    return sorted(gaps)[len(gaps) * 2 // 3] if gaps else 1.0


def _advance(gap: float, usual: float) -> float:
    if gap <= usual:
        return gap / usual
    return min(_LONGEST, 1.0 + 0.5 * math.log2(gap / usual))


def _scaled(name: str, slots: Sequence[Slot], units: Sequence[float]) -> Axis:
    whole = max(units, default=0.0) + 1.0
    pitch = max(_NARROWEST, min(_WIDEST, _PLOT / whole))
    xs = tuple(unit * pitch for unit in units)
    known = sorted((slot.at, x) for slot, x in zip(slots, xs, strict=True) if slot.at is not None)
    # In the order of time places never step back, so that every moment has one place.
    times: list[float] = []
    places: list[float] = []
    for moment, x in known:
        if times and moment == times[-1]:
            places[-1] = max(places[-1], x)
            continue
        times.append(moment)
        places.append(x if not places else max(x, places[-1]))
    gaps = tuple(
        Gap(places[n], times[n] - times[n - 1])
        for n in range(1, len(times))
        if times[n] - times[n - 1] >= LONG_GAP
    )
    return Axis(
        name=name,
        xs=xs,
        pitch=pitch,
        bar=pitch * _FILL,
        width=whole * pitch,
        gaps=gaps,
        _times=tuple(times),
        _places=tuple(places),
    )
