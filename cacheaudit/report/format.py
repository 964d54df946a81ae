"""Figures as people read them. Rounding happens here and nowhere before."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal

from cacheaudit.model.money import ZERO, decimal
from cacheaudit.model.plural import plural as plural

UNKNOWN = "not known"
DASH = "–"  # noqa: RUF001 - an en dash is what a table shows for "not known"
AT_LEAST = "≥ "
_SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "CNY": "CN¥", "JPY": "JP¥"}
_CENT = Decimal("0.01")
_FINE = Decimal("0.0001")
_UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


def count(value: int | None, unknown: str = DASH) -> str:
    """Write a whole number with thousands separators."""
    return unknown if value is None else f"{value:,}"


def count_of(value: int | None, missing: int, unknown: str = DASH) -> str:
    """Write a sum, as a lower bound where some of what it is made of is ``missing``."""
    bound = AT_LEAST if missing and value is not None else ""
    return bound + count(value, unknown)


def short_count(value: int | None, unknown: str = DASH) -> str:
    """Write a whole number in at most five characters: ``37.6k``, ``1.2M``."""
    if value is None:
        return unknown
    for size, unit in _UNITS:
        if abs(value) >= size:
            scaled = value / size
            return f"{scaled:.1f}{unit}" if abs(scaled) < 100 else f"{scaled:.0f}{unit}"
    return str(value)


def places_for(values: Iterable[str | None]) -> int:
    """Choose the decimals of a column of money: cents, or four places where all is below 1."""
    known = [abs(decimal(value)) for value in values if value is not None]
    return 2 if not known or max(known) >= 1 else 4


def money(value: str | None, currency: str, places: int = 2, unknown: str = UNKNOWN) -> str:
    """Write an amount; what would round to nothing is written as *less than*."""
    if value is None:
        return unknown
    amount = decimal(value)
    step = _CENT if places == 2 else _FINE
    rounded = amount.quantize(step, rounding=ROUND_HALF_UP)
    if amount and rounded == 0:
        return f"{'-' if amount < 0 else ''}<{_with_symbol(f'{step:f}', currency)}"
    sign = "-" if rounded < 0 else ""
    return sign + _with_symbol(f"{abs(rounded):,f}", currency)


def _with_symbol(text: str, currency: str) -> str:
    symbol = _SYMBOLS.get(currency)
    return f"{symbol}{text}" if symbol else f"{text} {currency}"


def amount(value: str | None, currency: str, unknown: str = UNKNOWN) -> str:
    """Write one amount that stands alone, with as many places as its size asks for."""
    return money(value, currency, places_for([value]), unknown)


def equivalents(value: str | None, unknown: str = DASH) -> str:
    """Write input equivalents, rounded to whole tokens."""
    if value is None:
        return unknown
    return f"{decimal(value).quantize(Decimal(1), rounding=ROUND_HALF_UP):,f}"


def ratio(value: float | str | None, unknown: str = UNKNOWN) -> str:
    """Write a share between 0 and 1 as a percentage with one place."""
    if value is None:
        return unknown
    return f"{(decimal(str(value)) * 100).quantize(Decimal('0.1'), rounding=ROUND_HALF_UP):f} %"


def share(part: int | Decimal | None, whole: int | Decimal | None) -> str | None:
    """Divide exactly enough for :func:`ratio`; ``None`` where either is unknown or whole is 0."""
    if part is None or not whole:
        return None
    value = Decimal(part) / Decimal(whole)
    return format(value.quantize(Decimal("0.000001")), "f")


def whole_percent(part: Decimal, whole: Decimal) -> str:
    """Write a share as a whole percentage; small ones as ``under 1 %``."""
    if whole == ZERO:
        return "0 %"
    value = part / whole * 100
    if ZERO < value < 1:
        return "under 1 %"
    return f"{value.quantize(Decimal(1), rounding=ROUND_HALF_UP):f} %"


def moment(text: str | None) -> str:
    """Shorten an RFC 3339 time to minutes: ``2026-11-03 10:05``."""
    return UNKNOWN if text is None else text[:16].replace("T", " ")


def period(first: str | None, last: str | None) -> str:
    """Write a period in UTC, naming the day once where it is one day."""
    if first is None or last is None:
        return "times not known"
    start, end = moment(first), moment(last)
    if start == end:
        return f"{start} UTC"
    if start[:10] == end[:10]:
        return f"{start} to {end[11:]} UTC"
    return f"{start} to {end} UTC"


def size(value: int) -> str:
    """Write a number of bytes."""
    for unit, step in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if value >= step:
            return f"{value / step:.1f} {unit}"
    return f"{value} bytes"


def short_id(text: str, width: int = 18) -> str:
    """Shorten a long id in its middle, where ids of one session differ least."""
    shown = printable(text)
    if len(shown) <= width:
        return shown
    tail = (width - 1) // 2
    return f"{shown[: width - 1 - tail]}…{shown[-tail:]}"


def printable(text: str) -> str:
    """Replace control characters, which a terminal would obey, and put all on one line."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else " " if char in "\n\t" else "\ufffd" for char in text
    )
