"""Price tables: one TOML file a provider, read late and only once.

A file holds ``schema``, ``provider``, ``currency``, ``checked``, ``write_ttl``, ``[sources]`` and
``[models]``; a model holds ``rows``, and may hold ``also`` (other names), ``factors`` (what a
region multiplies every token price by), ``write_ttl`` and ``note``. A row holds prices for a
million tokens (``uncached``, ``read``, ``write_5m`` …, ``output``; ``web_search`` for a thousand)
and when they hold: ``when`` (kind of service), ``from`` and ``to`` (UTC days), ``above`` (prompt
tokens), ``hours`` and ``days`` (UTC).
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from cacheaudit.errors import PricingError

SCHEMA: Final = 1
WRITE_UNITS: Final = {
    "write_5m": "5m",
    "write_1h": "1h",
    "write_30m": "30m",
    "write_12h": "12h",
}
UNITS: Final = ("uncached", "read", *WRITE_UNITS, "output", "web_search")
DAY: Final = 86_400
_DATA: Final = Path(__file__).with_name("data")
_EPOCH: Final = dt.date(1970, 1, 1)


class Hours(msgspec.Struct, frozen=True):
    """Times of day in UTC: minutes ``start`` to ``end`` (exclusive), on some weekdays or all."""

    start: int
    end: int
    days: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)

    @property
    def text(self) -> str:
        """The interval as ``01:00-04:00``."""
        return "-".join(f"{m // 60:02}:{m % 60:02}" for m in (self.start, self.end))

    def holds(self, minute: int, weekday: int) -> bool:
        """Whether a moment lies inside; an interval may run past midnight."""
        if weekday not in self.days:
            return False
        if self.start <= self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One price row as written, prices still for a million tokens."""

    rates: dict[str, Decimal]
    source: str
    checked: dt.date
    when: str = "standard"
    valid_from: dt.date | None = None
    valid_to: dt.date | None = None
    above: int = 0
    hours: tuple[Hours, ...] = ()
    note: str | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of one model."""

    id: str
    rows: tuple[Row, ...]
    write_ttl: str
    factors: dict[str, Decimal] = {}
    note: str | None = None


class Table:
    """The prices of one provider; rows are built when a model is first asked for."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        if raw.get("schema") != SCHEMA:
            raise PricingError(
                f"{where}: schema is {raw.get('schema')!r}, this version reads {SCHEMA}.",
                "Write 'schema = 1' or update cacheaudit.",
            )
        self.where = where
        self.provider: str = raw["provider"]
        self.currency: str = raw.get("currency", "USD")
        self.checked: dt.date = raw["checked"]
        self.write_ttl: str = raw.get("write_ttl", "5m")
        self.falls_back: tuple[str, ...] = tuple(raw.get("falls_back", ()))
        self.factors: dict[str, Decimal] = _decimals(raw.get("factors", {}), f"{where}: factors")
        self._sources: Mapping[str, Any] = raw.get("sources", {})
        self._models: Mapping[str, Any] = raw.get("models", {})
        self._index: dict[str, str] = {}
        for name, entry in self._models.items():
            for other in entry.get("also", ()):
                self._index.setdefault(other.lower(), name)
        for name in self._models:
            self._index[name.lower()] = name

    @property
    def names(self) -> dict[str, str]:
        """Every name that is known, in lower case, with the model that it stands for."""
        return self._index

    @property
    def models(self) -> tuple[str, ...]:
        """Model ids, in file order."""
        return tuple(self._models)

    @property
    def as_of(self) -> dt.date:
        """Newest day on which any source of this table was checked."""
        newest = self.checked
        for source in self._sources.values():
            newest = max(newest, source.get("checked", newest))
        return newest

    def model(self, name: str) -> Model:
        """Build one model by its id."""
        entry = self._models[name]
        rows = tuple(
            self._row(raw, f"{self.where}: {name}, row {number}")
            for number, raw in enumerate(entry["rows"], 1)
        )
        return Model(
            id=name,
            rows=rows,
            write_ttl=entry.get("write_ttl", self.write_ttl),
            factors=_decimals(entry.get("factors", {}), f"{self.where}: {name}, factors"),
            note=entry.get("note"),
        )

    def _row(self, raw: Mapping[str, Any], where: str) -> Row:
        key = raw.get("source", "")
        source = self._sources.get(key)
        if source is None:
            raise PricingError(f"{where}: the source {key!r} is not in [sources].")
        unknown = raw.keys() - _ROW_KEYS
        if unknown:
            raise PricingError(f"{where}: unknown key {min(unknown)!r}.")
        rates = {unit: price(raw[unit], f"{where}, {unit}") for unit in UNITS if unit in raw}
        if "uncached" not in rates:
            raise PricingError(f"{where}: 'uncached' is missing.", "Write the input price.")
        address = source.get("address")
        return Row(
            rates=rates,
            source=f"{source['title']}, {address}" if address else source["title"],
            checked=raw.get("checked", source.get("checked", self.checked)),
            when=raw.get("when", "standard"),
            valid_from=raw.get("from"),
            valid_to=raw.get("to"),
            above=raw.get("above", 0),
            hours=parse_hours(raw["hours"], raw.get("days"), where) if "hours" in raw else (),
            note=raw.get("note"),
        )


_ROW_KEYS: Final = frozenset(UNITS) | {
    "when", "from", "to", "above", "hours", "days", "source", "checked", "note",
}  # fmt: skip


def price(value: object, where: str) -> Decimal:
    """Take a price as an exact decimal.

    Raises:
        PricingError: It is a float, negative, or no number.
    """
    if isinstance(value, bool) or not isinstance(value, Decimal | int | str):
        raise PricingError(
            f"{where}: {value!r} is no exact decimal.", "Write a number or text such as '0.25'."
        )
    try:
        number = Decimal(value)
    except ArithmeticError:
        raise PricingError(f"{where}: {value!r} is no number.") from None
    if not number.is_finite() or number < 0:
        raise PricingError(f"{where}: {value!r} is not a finite number of 0 or more.")
    return number


def _decimals(raw: Mapping[str, Any], where: str) -> dict[str, Decimal]:
    return {key: price(value, f"{where}.{key}") for key, value in raw.items()}


_WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def parse_hours(text: str, days: str | None, where: str) -> tuple[Hours, ...]:
    """Read ``01:00-04:00 06:00-10:00`` and ``mon-fri``.

    Raises:
        PricingError: The text has another form.
    """
    try:
        weekdays = tuple(range(7)) if days is None else _parse_days(days)
        found = []
        for part in text.split():
            start, _, end = part.partition("-")
            found.append(Hours(_minute(start), _minute(end), weekdays))
    except (ValueError, IndexError):
        raise PricingError(
            f"{where}: hours {text!r} or days {days!r} cannot be read.",
            "Write hours = '01:00-04:00 06:00-10:00' and days = 'mon-fri'.",
        ) from None
    return tuple(found)


def _minute(text: str) -> int:
    hour, _, minute = text.partition(":")
    value = int(hour) * 60 + int(minute)
    if not 0 <= value <= 24 * 60:
        raise ValueError(text)
    return value


def _parse_days(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    start = _WEEKDAYS.index(first)
    return tuple(range(start, _WEEKDAYS.index(last or first) + 1))


def midnight(day: dt.date) -> float:
    """Seconds since the epoch at which a UTC day begins."""
    return float((day - _EPOCH).days * DAY)


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Read TOML with exact decimals.

    Raises:
        PricingError: It is no valid TOML.
    """
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise PricingError(f"{where}: {error}.", "Correct the file; it must be TOML.") from error


def load_builtin(name: str) -> Table | None:
    """Read the table that comes with the package; ``None`` where there is none."""
    if name not in builtin_names():
        return None
    file = _DATA / f"{name}.toml"
    text = file.read_text("utf-8")
    return Table(parse_toml(text, f"prices of {name}"), f"prices of {name}")


@cache
def builtin_names() -> tuple[str, ...]:
    """Names of the tables that come with the package."""
    return tuple(
        sorted(
            entry.name.removesuffix(".toml")
            for entry in _DATA.iterdir()
            if entry.name.endswith(".toml") and not entry.name.startswith("_")
        )
    )


def builtin_as_of() -> dt.date:
    """Newest day on which any built-in table was checked, without reading them all."""
    file = _DATA / "_index.toml"
    day = parse_toml(file.read_text("utf-8"), "price index")["as_of"]
    return day if isinstance(day, dt.date) else dt.date.min
