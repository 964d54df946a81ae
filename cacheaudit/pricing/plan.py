"""All cards that one (model, kind of service, region) can have, ready for a fast look-up."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from decimal import Decimal

import msgspec

from cacheaudit.model.money import MILLION
from cacheaudit.pricing.card import WRITE_LABELS, RateCard
from cacheaudit.pricing.table import DAY, WRITE_UNITS, Hours, Model, Row, Table, midnight

_ONE = Decimal(1)


class Tiers:
    """The cards of one moment, by size of the prompt."""

    __slots__ = ("cards", "thresholds", "unsized")

    def __init__(self, cards: Sequence[RateCard]) -> None:
        ordered = sorted(cards, key=lambda card: card.above)
        self.cards = tuple(ordered)
        # A tier begins strictly above its threshold.
        self.thresholds = tuple(card.above for card in ordered[1:])
        self.unsized = (
            ordered[0]
            if len(ordered) == 1
            else _noted(ordered[0], "prompt size unknown: lowest tier")
        )

    def pick(self, total: int | None) -> RateCard:
        """Card for a prompt of ``total`` tokens."""
        if total is None:
            return self.unsized
        if not self.thresholds:
            return self.cards[0]
        return self.cards[bisect_left(self.thresholds, total)]


class Window:
    """What holds between two dates: an all-day price, and prices for some hours."""

    __slots__ = ("base", "peaks")

    def __init__(self, base: Tiers, peaks: Sequence[tuple[tuple[Hours, ...], Tiers]]) -> None:
        self.base = base
        self.peaks = tuple(peaks)

    def at(self, moment: float) -> Tiers:
        """Return the tiers of a moment."""
        if self.peaks:
            days, seconds = divmod(moment, DAY)
            minute, weekday = int(seconds // 60), (int(days) + 3) % 7
            for hours, tiers in self.peaks:
                if any(span.holds(minute, weekday) for span in hours):
                    return tiers
        return self.base


class Plan:
    """Windows in order of time. An empty plan says why there is no price."""

    __slots__ = ("only", "reason", "starts", "tiered", "undated", "windows")

    def __init__(
        self,
        starts: Sequence[float] = (),
        windows: Sequence[Window | None] = (),
        as_of: float = 0.0,
        reason: str | None = None,
    ) -> None:
        self.starts = tuple(starts)
        self.windows = tuple(windows)
        self.reason = reason
        self.undated = self._newest(as_of)
        self.tiered = any(w is not None and len(w.base.cards) > 1 for w in windows)
        # By far the most common case: one price, whatever the date and size.
        single = len(windows) == 1 and self.starts == (float("-inf"),) and not self.tiered
        first = windows[0] if single else None
        self.only = first.base.cards[0] if first is not None and not first.peaks else None

    def _newest(self, as_of: float) -> Tiers | None:
        index = bisect_right(self.starts, as_of) - 1
        while index >= 0:
            window = self.windows[index]
            if window is not None:
                note = "date unknown: newest price"
                if window.peaks:
                    note += ", outside peak hours"
                return Tiers(
                    [
                        msgspec.structs.replace(_noted(card, note), undated=True)
                        for card in window.base.cards
                    ]
                )
            index -= 1
        return None

    def pick(self, at: float | None, total: int | None) -> RateCard | None:
        """Card for a moment and a prompt size; ``None`` where no row holds then."""
        if at is None:
            return None if self.undated is None else self.undated.pick(total)
        if self.only is not None:
            return self.only
        index = bisect_right(self.starts, at) - 1
        window = self.windows[index] if index >= 0 else None
        return None if window is None else window.at(at).pick(total)


def build_plan(
    table: Table, model: Model, kind: str, geo: str | None, note: str | None = None
) -> Plan:
    """Lay out the rows of one model for one kind of service and one region."""
    regional = _region_factor(model, geo)
    notes = [note] if note else []
    label = kind
    if regional != _ONE:
        notes.append(f"{geo}: {regional} of the rate")
        label += f"+{geo}"
    make = _CardMaker(table, model, label, kind, regional, tuple(notes))
    rows = [row for row in model.rows if row.when == kind]
    cards = [(row, make(row)) for row in rows]
    share = table.factors.get(kind)
    if share is not None and kind != "standard":
        notes.append(f"{kind}: {share} of the standard rate")
        make = _CardMaker(table, model, label, kind, regional * share, tuple(notes))
        uncovered = [r for r in model.rows if r.when == "standard" and not _covered(r, rows)]
        cards += [(row, make(row)) for row in uncovered]
    if not cards:
        return Plan(reason=f"no price for service {kind!r} of {model.id}")
    return _lay_out(cards, midnight(table.as_of) + DAY - 1)


def _covered(row: Row, rows: Iterable[Row]) -> bool:
    """Whether any of ``rows`` holds on a day on which ``row`` does."""
    low, high = _span(row)
    return any(low < end and start < high for start, end in map(_span, rows))


def _span(row: Row) -> tuple[float, float]:
    low = float("-inf") if row.valid_from is None else midnight(row.valid_from)
    high = float("inf") if row.valid_to is None else midnight(row.valid_to)
    return low, high


def _region_factor(model: Model, geo: str | None) -> Decimal:
    name = (geo or "").strip().lower()
    if name in ("", "global", "not_available", "unknown"):
        return _ONE
    return model.factors.get(name, model.factors.get("regional", _ONE))


def _lay_out(cards: Iterable[tuple[Row, RateCard]], as_of: float) -> Plan:
    spans: dict[tuple[float, float], list[tuple[Row, RateCard]]] = {}
    for row, card in cards:
        spans.setdefault(_span(row), []).append((row, card))
    starts: list[float] = []
    windows: list[Window | None] = []
    end = None
    for (low, high), members in sorted(spans.items(), key=lambda item: item[0]):
        if end is not None and low > end:
            starts.append(end)
            windows.append(None)
        starts.append(low)
        windows.append(_window(members))
        end = high
    if end is not None and end != float("inf"):
        starts.append(end)
        windows.append(None)
    return Plan(starts, windows, as_of)


def _window(cards: Iterable[tuple[Row, RateCard]]) -> Window:
    groups: dict[tuple[Hours, ...], list[RateCard]] = {}
    for row, card in cards:
        groups.setdefault(row.hours, []).append(card)
    base = groups.pop((), None)
    if base is None:  # check.py refuses such a table; hours alone leave the rest of the day open
        base = next(iter(groups.values()))
    return Window(Tiers(base), [(hours, Tiers(tier)) for hours, tier in groups.items()])


class _CardMaker:
    """Turns rows into cards, a token's price at a time, with every factor applied."""

    def __init__(
        self,
        table: Table,
        model: Model,
        label: str,
        kind: str,
        factor: Decimal,
        notes: tuple[str, ...],
    ) -> None:
        self._table = table
        self._model = model
        self._label = label
        self._kind = kind
        self._factor = factor
        self._notes = notes

    def __call__(self, row: Row) -> RateCard:
        rates = row.rates
        uncached = self._token(rates["uncached"])
        writes = {
            ttl: self._token(rates[unit]) for unit, ttl in WRITE_UNITS.items() if unit in rates
        }
        if not writes:
            # A provider that publishes no write price bills a written token as ordinary input.
            writes = dict.fromkeys(WRITE_LABELS, uncached)
        notes = [note for note in (self._model.note, row.note, *self._notes) if note]
        return RateCard(
            id=self._id(row),
            provider=self._table.provider,
            model=self._model.id,
            currency=self._table.currency,
            variant=self._kind,
            uncached=uncached,
            read=self._token(rates["read"]) if "read" in rates else uncached,
            writes=writes,
            output=self._token(rates["output"]) if "output" in rates else None,
            web_search=rates["web_search"] / 1000 if "web_search" in rates else None,
            write_ttl=self._model.write_ttl,
            above=row.above,
            valid_from=_iso(row.valid_from),
            valid_to=_iso(row.valid_to),
            source=row.source,
            checked=row.checked.isoformat(),
            note="; ".join(notes) or None,
        )

    def _token(self, rate: Decimal) -> Decimal:
        return (rate * self._factor / MILLION).normalize()

    def _id(self, row: Row) -> str:
        start = _iso(row.valid_from) or "start"
        text = f"{self._table.provider}/{self._model.id}@{start}/{self._label}"
        if row.above:
            text += f">{row.above}"
        return f"{text}/{','.join(span.text for span in row.hours)}" if row.hours else text


def _iso(day: dt.date | None) -> str | None:
    return None if day is None else day.isoformat()


def _noted(card: RateCard, note: str) -> RateCard:
    return msgspec.structs.replace(card, note=f"{card.note}; {note}" if card.note else note)
