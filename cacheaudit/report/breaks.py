"""Where prompts leave their prefix: pairs of strips, and a map of the whole session."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from html import escape

import msgspec

from cacheaudit.report.result import CallRow, ChangeRow, Strip
from cacheaudit.report.svg import number

SHOWN_BREAKS = 40
SHOWN_ROWS = 160
_WIDE = 860.0
_ROW = 7.0
_LEFT = 40
LEVELS = ("tools", "system", "messages")


class Segment(msgspec.Struct, frozen=True):
    """A level of a strip, in per cent of the widest prompt."""

    level: str
    tokens: int
    width: str


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt drawn as a strip; places are per cent of the widest prompt."""

    number: int
    call: str
    total: int
    read: int | None
    width: str
    segments: tuple[Segment, ...]
    read_width: str
    marks: tuple[str, ...]
    change: str | None
    scaled: bool


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose prompt differs from the one before it, both as strips."""

    number: int
    row: CallRow
    change: ChangeRow
    marks: tuple[int, ...]
    lanes: tuple[Lane, ...]


class Alike(msgspec.Struct, frozen=True):
    """Breaks at the same place of a lane and of the same kind: the first, and the others."""

    first: Break
    more: tuple[Break, ...]


def alike(breaks: Sequence[Break]) -> tuple[Alike, ...]:
    """Put breaks together that say the same, in order of the first."""
    grouped: dict[tuple[str, str, str, str], list[Break]] = {}
    for item in breaks:
        key = (item.row.session, item.row.lane, item.change.path, item.change.kind)
        grouped.setdefault(key, []).append(item)
    return tuple(Alike(group[0], tuple(group[1:])) for group in grouped.values())


class Breaks:
    """Keeps the breaks that moved the most tokens, each with the call before it in its lane."""

    def __init__(self, session: str | None) -> None:
        self._session = session
        self._before: dict[tuple[str, str], tuple[int, CallRow]] = {}
        self._heap: list[tuple[tuple[int, int], tuple[int, CallRow, tuple[int, ...]]]] = []
        self._pairs: dict[int, tuple[int, CallRow]] = {}
        self._map: list[tuple[int, CallRow]] = []
        self.total = 0
        self.mapped = 0
        self.with_strip = 0

    def take(self, place: int, row: CallRow, marks: tuple[int, ...]) -> None:
        """Take the next call."""
        if row.strip is not None:
            self.with_strip += 1
            if row.session == self._session:
                self.mapped += 1
                if len(self._map) < SHOWN_ROWS:
                    self._map.append((place, row))
        key = (row.session, row.lane)
        before = self._before.get(key)
        if row.strip is not None or row.first_change is not None:
            self._before[key] = (place, row)
        change = row.first_change
        if change is None:
            return
        self.total += 1
        item = ((change.tokens_after or 0, -place), (place, row, marks))
        if before is not None:
            self._pairs[place] = before
        if len(self._heap) < SHOWN_BREAKS:
            heapq.heappush(self._heap, item)
        else:
            gone = heapq.heappushpop(self._heap, item)
            self._pairs.pop(gone[1][0], None)

    @property
    def rows(self) -> tuple[Break, ...]:
        """The breaks, in order of the calls."""
        kept = sorted((item for _, item in self._heap), key=lambda item: item[0])
        return tuple(self._break(*item) for item in kept)

    def _break(self, place: int, row: CallRow, marks: tuple[int, ...]) -> Break:
        pair = [self._pairs[place]] if place in self._pairs else []
        shown = [(n, call, call.strip) for n, call in [*pair, (place, row)] if call.strip]
        widest = max((_size(strip) for _, _, strip in shown), default=1) or 1
        if row.first_change is None:
            raise ValueError("a break has a change")
        return Break(
            number=place,
            row=row,
            change=row.first_change,
            marks=marks,
            lanes=tuple(_lane(n, call, strip, widest, n == place) for n, call, strip in shown),
        )

    def map_svg(self, label: str) -> str | None:
        """Draw the prompts of the dearest session below one another; ``None`` without any."""
        return _map(self._map, label) if len(self._map) > 1 else None

    @property
    def map_rows(self) -> int:
        """Rows of the map."""
        return len(self._map)


def _size(strip: Strip) -> int:
    return sum(tokens for _, tokens in strip.parts)


def _per_cent(tokens: int, widest: int) -> str:
    return f"{min(100.0, tokens * 100 / widest):.2f}"


def _lane(place: int, row: CallRow, strip: Strip, widest: int, has_change: bool) -> Lane:
    total = _size(strip)
    read = row.cache_read
    return Lane(
        number=place,
        call=row.id,
        total=total,
        read=read,
        width=_per_cent(total, widest),
        segments=tuple(
            Segment(level, tokens, _per_cent(tokens, widest)) for level, tokens in strip.parts
        ),
        read_width=_per_cent(min(read or 0, total), widest),
        marks=tuple(_per_cent(mark, widest) for mark in strip.marks),
        change=None if strip.change is None or not has_change else _per_cent(strip.change, widest),
        scaled=strip.scaled,
    )


def _map(rows: Sequence[tuple[int, CallRow]], label: str) -> str:
    strips = [(place, row, row.strip) for place, row in rows if row.strip is not None]
    widest = max(_size(strip) for _, _, strip in strips) or 1
    scale = _WIDE / widest
    tall = len(strips) * _ROW + 4
    paths: dict[str, list[str]] = {name: [] for name in (*LEVELS, "read", "markers", "changes")}
    texts: list[str] = []
    for index, (place, row, strip) in enumerate(strips):
        y = index * _ROW + 2
        x = float(_LEFT)
        for level, tokens in strip.parts:
            wide = tokens * scale
            paths.setdefault(level, []).append(_bar(x, y, wide))
            x += wide
        if row.cache_read:
            paths["read"].append(_bar(_LEFT, y, min(row.cache_read, _size(strip)) * scale))
        for mark in strip.marks:
            at = _LEFT + mark * scale
            paths["markers"].append(f"M{number(at)} {number(y)}v{number(_ROW - 1.5)}")
        if strip.change is not None:
            at = _LEFT + strip.change * scale
            paths["changes"].append(f"M{number(at)} {number(y - 1)}v{number(_ROW)}")
        if index % 5 == 0:
            texts.append(f'<text x="{_LEFT - 6}" y="{number(y + 5.5)}">{place}</text>')
    drawn = "".join(
        f'<path class="{escape(name)}" d="{"".join(shapes)}"/>'
        for name, shapes in paths.items()
        if shapes
    )
    return (
        f'<svg class="map" viewBox="0 0 {_LEFT + _WIDE + 8:.0f} {number(tall)}" role="img"'
        f' aria-label="{escape(label)}">{drawn}{"".join(texts)}</svg>'
    )


def _bar(x: float, y: float, wide: float) -> str:
    return f"M{number(x)} {number(y)}h{number(wide)}v{number(_ROW - 1.5)}h-{number(wide)}z"
