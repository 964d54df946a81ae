"""Draws a timeline as SVG text: one stacked bar a call, one row a lane, marks for findings."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cacheaudit.model.clock import parse_time
from cacheaudit.report import format as fmt
from cacheaudit.report.figures import Slot, Timeline

_LEFT, _RIGHT, _TOP, _FOOT = 8, 56, 30, 22
_PLOT = 900
_WIDEST, _NARROWEST = 56.0, 3.0
_SHOWN_LANES = 8
_LONG_GAP = 300.0
_LABEL_EVERY = 78


class Geometry:
    """Where things stand in one figure."""

    def __init__(self, slots: int, lanes: int) -> None:
        self.pitch = max(_NARROWEST, min(_WIDEST, _PLOT / max(1, slots)))
        self.bar = self.pitch - (1 if self.pitch < 8 else 3 if self.pitch < 20 else 6)
        self.height = 132 if lanes == 1 else 84 if lanes <= 4 else 60
        self.width = round(_LEFT + slots * self.pitch + _RIGHT)
        self.total = lanes * (self.height + _TOP) + _FOOT

    def x(self, index: int) -> float:
        """Left edge of a bar."""
        return _LEFT + index * self.pitch

    def base(self, lane: int) -> int:
        """Ground line of a lane."""
        return (lane + 1) * (self.height + _TOP)


def timeline_svg(timeline: Timeline, label: str, linked: bool) -> str:
    """Draw one session.

    Args:
        timeline: Its bars.
        label: What the figure shows, for readers that cannot see it.
        linked: Whether the call table has a row for every call, to link to.
    """
    slots = timeline.slots
    rows = _rows(timeline.lanes)
    geometry = Geometry(max((s.index for s in slots), default=0) + 1, len(set(rows.values())))
    highest = max((s.mean_input for s in slots), default=0) or 1
    names = _lane_names(slots, rows)
    least = min(geometry.width, max(560, geometry.width * 3 // 4))
    style = f"min-width:{least}px;max-width:{geometry.width * 13 // 10}px"
    box = f"0 0 {geometry.width} {geometry.total}"
    head = f'<svg viewBox="{box}" role="group" aria-label="{escape(label)}" style="{style}">'
    parts = [head]
    for row, name in enumerate(names):
        parts.append(_frame(geometry, row, highest, name))
        mine = [slot for slot in slots if rows[slot.lane] == row]
        parts += _bars(geometry, row, mine, highest)
        parts += [_hover(geometry, row, slot, linked) for slot in mine]
        parts += [_mark(geometry, row, slot, highest) for slot in mine if slot.marks]
    parts += _times(geometry, slots)
    parts.append("</svg>")
    return "".join(parts)


def _rows(lanes: Sequence[str]) -> dict[str, int]:
    return {lane: min(index, _SHOWN_LANES - 1) for index, lane in enumerate(lanes)}


def _lane_names(slots: Sequence[Slot], rows: dict[str, int]) -> list[str]:
    lanes: list[list[str]] = [[] for _ in set(rows.values())]
    for lane, row in rows.items():
        lanes[row].append(lane)
    calls = [0] * len(lanes)
    for slot in slots:
        calls[rows[slot.lane]] += slot.calls
    return [
        f"{names[0] if len(names) == 1 else f'{len(names):,} more lanes'}"
        f" · {fmt.plural(number, 'call')}"
        for names, number in zip(lanes, calls, strict=True)
    ]


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _frame(geometry: Geometry, row: int, highest: int, name: str) -> str:
    base, right = geometry.base(row), geometry.width - _RIGHT + 4
    lines = [
        f'<text class="lane" x="{_LEFT}" y="{base - geometry.height - 12}">{escape(name)}</text>'
    ]
    for part in (1.0, 0.5):
        y = _number(base - geometry.height * part)
        tokens = fmt.short_count(round(highest * part))
        lines.append(f'<path class="grid" d="M{_LEFT} {y}H{right}"/>')
        lines.append(f'<text class="tick" x="{right + 4}" y="{y}" dy="3">{tokens}</text>')
    lines.append(f'<path class="ground" d="M{_LEFT} {base}H{right}"/>')
    return "".join(lines)


def _bars(geometry: Geometry, row: int, slots: Sequence[Slot], highest: int) -> list[str]:
    """Draw each colour of a lane as one path, which keeps the page small."""
    paths: dict[str, list[str]] = {"read": [], "write": [], "uncached": [], "unsplit": []}
    width = _number(geometry.bar)
    for slot in slots:
        x, y = _number(geometry.x(slot.index)), float(geometry.base(row))
        for name, shapes in paths.items():
            tokens = getattr(slot, name) / max(1, slot.calls)
            if not tokens:
                continue
            tall = max(1.0, tokens * geometry.height / highest)
            y -= tall
            shapes.append(f"M{x} {_number(y)}h{width}v{_number(tall)}h-{width}z")
    return [
        f'<path class="{name}" d="{"".join(shapes)}"/>' for name, shapes in paths.items() if shapes
    ]


def _hover(geometry: Geometry, row: int, slot: Slot, linked: bool) -> str:
    top = geometry.base(row) - geometry.height
    area = (
        f'<path class="hit" d="M{_number(geometry.x(slot.index))} {top}'
        f'h{_number(geometry.pitch)}v{geometry.height}h-{_number(geometry.pitch)}z">'
        f"<title>{escape(describe(slot))}</title></path>"
    )
    if linked and slot.calls == 1:
        return f'<a href="#c{slot.number}" tabindex="-1">{area}</a>'
    return area


def describe(slot: Slot) -> str:
    """Say in words what a bar shows."""
    time = slot.started_at[11:19] if slot.started_at else ""
    who = (
        f"Call {slot.number} ({slot.first_call})"
        if slot.calls == 1
        else f"{slot.calls} calls from number {slot.number}, together"
    )
    parts = [
        f"{getattr(slot, name):,} {word}"
        for name, word in (
            ("read", "read"),
            ("write", "written"),
            ("uncached", "uncached"),
            ("unsplit", "input of unknown kind"),
        )
        if getattr(slot, name)
    ]
    return f"{who}{f' at {time}' if time else ''}: {', '.join(parts) or 'no input'}"


def _mark(geometry: Geometry, row: int, slot: Slot, highest: int) -> str:
    number = slot.marks[0]
    x = geometry.x(slot.index) + geometry.bar / 2
    tall = slot.mean_input * geometry.height / highest
    y = geometry.base(row) - tall - 9
    names = ", ".join(str(mark) for mark in dict.fromkeys(slot.marks))
    label = f"Finding {names}"
    if geometry.pitch < 16:
        shape = f'<path d="M{_number(x - 4)} {_number(y)}h8l-4 7z"/>'
    else:
        shape = (
            f'<circle cx="{_number(x)}" cy="{_number(y)}" r="8"/>'
            f'<text x="{_number(x)}" y="{_number(y)}" dy="3.5">{number}</text>'
        )
    return (
        f'<a class="mark" href="#f{number}" aria-label="{label}">{shape}<title>{label}</title></a>'
    )


def _times(geometry: Geometry, slots: Sequence[Slot]) -> list[str]:
    """Write clock times under the bars, and how long it was quiet where that was long."""
    parts: list[str] = []
    y = geometry.total - 6
    last_x, last_gap = -1e9, 120.0
    last_at: float | None = None
    for slot in sorted(slots, key=lambda s: s.index):
        at = parse_time(slot.started_at)
        if at is None:
            continue
        x = geometry.x(slot.index)
        gap = 0.0 if last_at is None else at - last_at
        last_at = at if last_at is None else max(at, last_at)
        if gap >= _LONG_GAP:
            edge = _number(x - (geometry.pitch - geometry.bar) / 2)
            words = escape(f"{duration(gap)} without a call")
            parts.append(
                f'<path class="gap" d="M{edge} 12V{geometry.total - _FOOT}">'
                f"<title>{words}</title></path>"
            )
            if x - last_gap >= 0:
                last_gap = x + _LABEL_EVERY
                parts.append(f'<text class="tick" x="{edge}" y="9" dx="3">{duration(gap)}</text>')
        if x - last_x >= _LABEL_EVERY and slot.started_at:
            last_x = x
            parts.append(
                f'<text class="tick" x="{_number(x)}" y="{y}">{slot.started_at[11:19]}</text>'
            )
    return parts


def duration(seconds: float) -> str:
    """Write a time span: ``5 min 35 s``."""
    whole = round(seconds)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"
