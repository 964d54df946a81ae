"""Draws a session as SVG text: stacked bars by lane, how long the cache lives, what was predicted.

From top to bottom each lane has its bars, a band that fades out where the cache expires, a row that
compares predicted with reported reads, and a row of signs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from html import escape

from cacheaudit.report import format as fmt
from cacheaudit.report.axis import Axis
from cacheaudit.report.figures import Slot, Timeline
from cacheaudit.report.rows import rows_of
from cacheaudit.report.signs import SIGNS

_LEFT, _RIGHT, _HEAD, _TOP, _FOOT = 6, 58, 14, 34, 22
_SHOWN_PAUSES = 24
_LABEL_EVERY = 84
_BAND, _ROW, _SIGN = 5, 7, 13
_TOKENS = ("read", "write", "long", "uncached", "unsplit")
_MONEY = {
    "read": ("read",),
    "write": ("write_5m", "write_30m"),
    "long": ("write_1h", "write_12h"),
    "uncached": ("uncached",),
    "output": ("output",),
    "unsplit": ("other",),
}


class Layout:
    """Where things stand in one figure."""

    def __init__(self, timeline: Timeline, axis: Axis, highest: int, dearest: Decimal) -> None:
        slots = timeline.slots
        self.axis = axis
        self.rows = rows_of(slots, axis.xs, axis.pitch)
        self.row_of = {lane: n for n, row in enumerate(self.rows) for lane in row.lanes}
        self.is_folded = timeline.each > 1
        self.has_band = any(slot.alive is not None and slot.at is not None for slot in slots)
        self.has_row = any(slot.exact or slot.off for slot in slots)
        self.has_signs = any(slot.signs for slot in slots)
        self.below = (
            (_BAND + 2) * self.has_band + (_ROW + 3) * self.has_row + _SIGN * self.has_signs
        )
        self.width = round(_LEFT + axis.width + _RIGHT)
        self.bases: list[int] = []
        edge = _HEAD
        for row in self.rows:
            edge += _TOP + row.tall
            self.bases.append(edge)
            edge += self.below
        self.height = edge + _FOOT
        self.highest = highest
        self.dearest = dearest

    def x(self, place: float) -> float:
        """Place in the figure."""
        return _LEFT + place

    def tokens(self, row: int, count: float) -> float:
        """Height of a number of tokens."""
        return count * self.rows[row].tall / self.highest

    def money(self, row: int, amount: Decimal) -> float:
        """Height of an amount."""
        part = float(amount / self.dearest) if self.dearest else 0.0
        return part * self.rows[row].tall


def timeline_svg(timeline: Timeline, axis: Axis, label: str, linked: bool, currency: str) -> str:
    """Draw one session along one axis.

    Args:
        timeline: Its bars.
        axis: Where they stand.
        label: What the figure shows, for readers that cannot see it.
        linked: Whether the call table has a row for every call, to link to.
        currency: Currency of the costs.
    """
    slots = timeline.slots
    highest = max((slot.mean_input for slot in slots), default=0) or 1
    dearest = max((slot.mean_cost for slot in slots), default=Decimal(0))
    layout = Layout(timeline, axis, highest, dearest)
    by_row: list[list[tuple[Slot, float]]] = [[] for _ in layout.rows]
    for slot, place in zip(slots, axis.xs, strict=True):
        by_row[layout.row_of[slot.lane]].append((slot, layout.x(place)))
    least = min(layout.width, max(520, layout.width * 3 // 4))
    style = f"min-width:{least}px;max-width:{layout.width * 13 // 10}px"
    box = f"0 0 {layout.width} {layout.height}"
    parts = [f'<svg viewBox="{box}" role="group" aria-label="{escape(label)}" style="{style}">']
    parts += _pauses(layout)
    for row, mine in enumerate(by_row):
        parts.append(_frame(layout, row, currency))
        parts += _bars(layout, row, mine)
        parts += _below(layout, row, mine)
        parts += [_hover(layout, row, slot, x, linked, currency) for slot, x in mine]
        parts += _marks(layout, row, [(slot, x) for slot, x in mine if slot.marks])
    parts += _times(layout, by_row)
    parts.append("</svg>")
    return "".join(parts)


def number(value: float) -> str:
    """Write a coordinate with at most one place."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _box(x: float, y: float, wide: float, tall: float) -> str:
    return f"M{number(x)} {number(y)}h{number(wide)}v{number(tall)}h-{number(wide)}z"


def _frame(layout: Layout, row: int, currency: str) -> str:
    base, right = layout.bases[row], layout.width - _RIGHT + 4
    tall, name = layout.rows[row].tall, layout.rows[row].name
    lines = [f'<text class="lane" x="{_LEFT}" y="{base - tall - 16}">{escape(name)}</text>']
    for part in (1, 2):
        y = number(base - tall / part)
        tokens = fmt.short_count(layout.highest // part)
        lines.append(f'<path class="grid" d="M{_LEFT} {y}H{right}"/>')
        lines.append(f'<text class="tick tokens" x="{right + 4}" y="{y}" dy="3">{tokens}</text>')
        if layout.dearest:
            shown = fmt.amount(str(layout.dearest / part), currency)
            lines.append(f'<text class="tick money" x="{right + 4}" y="{y}" dy="3">{shown}</text>')
    lines.append(f'<path class="ground" d="M{_LEFT} {base}H{right}"/>')
    return "".join(lines)


def _bars(layout: Layout, row: int, mine: Sequence[tuple[Slot, float]]) -> Iterator[str]:
    """Draw each colour of a lane as one path, which keeps the page small."""
    heights = [(x, _token_heights(layout, row, slot)) for slot, x in mine]
    yield f'<g class="tokens">{_stacks(layout, row, heights)}</g>'
    if layout.dearest:
        heights = [(x, _money_heights(layout, row, slot)) for slot, x in mine]
        yield f'<g class="money">{_stacks(layout, row, heights)}</g>'


def _token_heights(layout: Layout, row: int, slot: Slot) -> dict[str, float]:
    each = max(1, slot.calls)
    counts = {name: getattr(slot, name) for name in _TOKENS}
    counts["write"] -= slot.long
    return {name: layout.tokens(row, count / each) for name, count in counts.items() if count}


def _money_heights(layout: Layout, row: int, slot: Slot) -> dict[str, float]:
    each = max(1, slot.calls)
    found: dict[str, float] = {}
    for name, kinds in _MONEY.items():
        amount = sum((slot.money.get(kind, Decimal(0)) for kind in kinds), Decimal(0))
        if amount:
            found[name] = layout.money(row, amount / each)
    return found


def _stacks(layout: Layout, row: int, heights: Sequence[tuple[float, Mapping[str, float]]]) -> str:
    paths: dict[str, list[str]] = {name: [] for name in ("read", "write", "long", "uncached")}
    for x, parts in heights:
        y = float(layout.bases[row])
        for name, tall in parts.items():
            height = max(0.8, tall)
            y -= height
            paths.setdefault(name, []).append(_box(x, y, layout.axis.bar, height))
    return "".join(
        f'<path class="{name}" d="{"".join(shapes)}"/>' for name, shapes in paths.items() if shapes
    )


def _below(layout: Layout, row: int, mine: Sequence[tuple[Slot, float]]) -> Iterator[str]:
    y = layout.bases[row] + 2.0
    if layout.has_band:
        yield from _band(layout, y, mine)
        y += _BAND + 2
    if layout.has_row:
        yield from _agreement(layout, y, mine)
        y += _ROW + 3
    if layout.has_signs:
        yield from (_signs(layout, y + 9, slot, x) for slot, x in mine if slot.signs)


def _band(layout: Layout, y: float, mine: Sequence[tuple[Slot, float]]) -> Iterator[str]:
    """Draw how long the cache lives: solid while it is renewed in time, fading out where not."""
    solid: list[str] = []
    timed = [(slot, x) for slot, x in mine if slot.at is not None]
    for place, (slot, x) in enumerate(timed):
        if slot.alive is None or slot.at is None:
            continue
        follows = timed[place + 1] if place + 1 < len(timed) else None
        end = slot.at + slot.alive
        if follows is not None and follows[0].at is not None and follows[0].at <= end:
            solid.append(_box(x, y, max(0.0, follows[1] - x), _BAND))
            continue
        gone = min(layout.x(layout.axis.at(end)), layout.width - _RIGHT + 4.0)
        wide = max(layout.axis.bar, gone - x)
        yield (
            f'<rect class="fading" x="{number(x)}" y="{number(y)}" width="{number(wide)}"'
            f' height="{_BAND}">{"" if layout.is_folded else _life(slot)}</rect>'
        )
        if follows is not None:
            yield f'<path class="expiry" d="M{number(x + wide)} {number(y - 2)}v{_BAND + 4}"/>'
    if solid:
        yield f'<path class="alive" d="{"".join(solid)}"/>'


def _life(slot: Slot) -> str:
    words = f"Cached for {duration(slot.alive or 0)} from the start of call {slot.number}"
    return f"<title>{escape(words)}</title>"


def _agreement(layout: Layout, y: float, mine: Sequence[tuple[Slot, float]]) -> Iterator[str]:
    """Compare predicted with reported reads: a quiet box where equal, a hatched one where not."""
    same, off = [], []
    for slot, x in mine:
        if slot.off:
            off.append(_box(x, y, layout.axis.bar, _ROW))
        elif slot.exact:
            same.append(_box(x, y, layout.axis.bar, _ROW))
    if same:
        yield f'<path class="same" d="{"".join(same)}"/>'
    if off:
        yield f'<path class="differs" d="{"".join(off)}"/>'


def _signs(layout: Layout, y: float, slot: Slot, x: float) -> str:
    found = list(dict.fromkeys(slot.signs))
    words = escape(", ".join(SIGNS[sign] for sign in found))
    middle = number(x + layout.axis.bar / 2)
    shown = "".join(found[: 1 if layout.axis.pitch < 18 else 2])
    return f'<text class="sign" x="{middle}" y="{number(y)}">{shown}<title>{words}</title></text>'


def _hover(layout: Layout, row: int, slot: Slot, x: float, linked: bool, currency: str) -> str:
    tall = layout.rows[row].tall
    top = layout.bases[row] - tall
    has_row = linked and slot.calls == 1
    area = (
        f'<path class="hit" d="{_box(x, top, layout.axis.bar, tall)}">'
        f"<title>{escape(describe(slot, currency, named=not has_row))}</title></path>"
    )
    if has_row:
        return f'<a href="#c{slot.number}" tabindex="-1">{area}</a>'
    return area


def describe(slot: Slot, currency: str, *, named: bool = True) -> str:
    """Say in words what a bar shows; ``named``: with the call's id, which may be long."""
    time = slot.started_at[11:19] if slot.started_at else ""
    who = f"Call {slot.number}" + (f" ({slot.first_call})" if named else "")
    if slot.calls > 1:
        who = f"{slot.calls} calls from number {slot.number}, together"
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
    cost = f"; {fmt.amount(str(slot.cost), currency)}" if slot.cost else ""
    return (
        f"{who}{f' at {time}' if time else ''}: {', '.join(parts) or 'no input'}{cost}"
        f"{_prediction(slot)}"
    )


def _prediction(slot: Slot) -> str:
    if slot.off:
        return f"; predicted {slot.predicted:,} read, reported {slot.reported:,}"
    return "; read as predicted" if slot.exact else ""


def _marks(layout: Layout, row: int, mine: Sequence[tuple[Slot, float]]) -> Iterator[str]:
    """Put marks on top of bars, whose height depends on what they show."""
    if not mine:
        return
    heights = {"tokens": [layout.tokens(row, slot.mean_input) for slot, _ in mine]}
    if layout.dearest:
        heights["money"] = [layout.money(row, slot.mean_cost) for slot, _ in mine]
    for unit, talls in heights.items():
        drawn = (
            _mark(layout, row, slot, x, tall) for (slot, x), tall in zip(mine, talls, strict=True)
        )
        yield f'<g class="{unit}">{"".join(drawn)}</g>'


def _mark(layout: Layout, row: int, slot: Slot, x: float, tall: float) -> str:
    first = slot.marks[0]
    middle = x + layout.axis.bar / 2
    y = number(layout.bases[row] - tall - 10)
    names = ", ".join(str(mark) for mark in sorted(set(slot.marks)))
    label = f"Opportunity {names}"
    if layout.axis.pitch < 15:
        shape = f'<path d="M{number(middle - 4)} {y}h8l-4 7z"/>'
    else:
        shape = (
            f'<circle cx="{number(middle)}" cy="{y}" r="8"/>'
            f'<text x="{number(middle)}" y="{y}" dy="3.5">{first}</text>'
        )
    return (
        f'<a class="mark" href="#f{first}" aria-label="{label}">{shape}<title>{label}</title></a>'
    )


def _pauses(layout: Layout) -> Iterator[str]:
    """Draw a dashed line where it was quiet for long, with how long where there is room."""
    last = -1e9
    longest = sorted(layout.axis.gaps, key=lambda gap: -gap.seconds)[:_SHOWN_PAUSES]
    for gap in sorted(longest, key=lambda gap: gap.x):
        edge = layout.x(gap.x) - (layout.axis.pitch - layout.axis.bar) / 2
        x = number(edge)
        words = escape(f"{duration(gap.seconds)} without a call")
        yield (
            f'<path class="gap" d="M{x} 14V{layout.height - _FOOT}"><title>{words}</title></path>'
        )
        if edge - last >= _LABEL_EVERY and edge >= 70:
            last = edge
            short = duration(gap.seconds)
            yield f'<text class="tick pause" x="{x}" y="10" dx="-3">{short}</text>'


def _times(layout: Layout, by_row: Sequence[Sequence[tuple[Slot, float]]]) -> Iterator[str]:
    """Write clock times under the bars."""
    y = layout.height - 6
    last = -1e9
    everyone = sorted(
        (x, slot.started_at) for mine in by_row for slot, x in mine if slot.started_at
    )
    for x, start in everyone:
        if x - last >= _LABEL_EVERY and x < layout.width - _RIGHT:
            last = x
            yield f'<text class="tick" x="{number(x)}" y="{y}">{start[11:19]}</text>'


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
