"""The clock that everything else is handed: nothing below the commands asks the system."""

from __future__ import annotations

import datetime as dt
import time
from functools import lru_cache
from typing import Final, Protocol

_HOUR_MS: Final = 3_600_000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_DIGITS: Final = "0123456789"
_SIXTY: Final = [tens + ones for tens in _DIGITS[:6] for ones in _DIGITS]
_SECONDS: Final = [f"{minute}:{second}." for minute in _SIXTY for second in _SIXTY]
_THOUSANDTHS: Final = [f"{a}{b}{c}Z" for a in _DIGITS for b in _DIGITS for c in _DIGITS]

# Years 1653 to 2286. Whatever lies beyond is damage, and would not fit a calendar.
LATEST = 1e10


class Clock(Protocol):
    """Tells the time in seconds since the epoch."""

    def now(self) -> float:
        """Return the present time in seconds since the epoch."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Return the present time in seconds since the epoch."""
        return time.time()  # noqa: TID251 - the one place that may


class FixedClock:
    """A clock that stands still until it is told to move; for tests and replays."""

    def __init__(self, at: float = 0.0) -> None:
        self._at = at

    def now(self) -> float:
        """Return the time that was set."""
        return self._at

    def advance(self, seconds: float) -> None:
        """Move the clock forward by ``seconds``."""
        self._at += seconds


def iso(at: float) -> str:
    """Write a time as RFC 3339 in UTC with milliseconds, ending in ``Z``."""
    # As datetime does it: microseconds to nearest even, then cut to milliseconds.
    thousandths = round(at * 1e6) // 1_000
    hour = thousandths // _HOUR_MS
    rest = thousandths - hour * _HOUR_MS
    second = rest // 1_000
    # Looked up: to write numbers with leading zeros takes three times as long.
    return _hour_text(hour) + _SECONDS[second] + _THOUSANDTHS[rest - second * 1_000]


@lru_cache(maxsize=1024)
def _hour_text(hour: int) -> str:
    """Begin a time: ``2026-02-13T01:`` for an hour counted from the epoch."""
    return (_EPOCH + dt.timedelta(hours=hour)).isoformat()[:14]


def day(at: float) -> dt.date:
    """Return the UTC calendar day of a time."""
    return dt.datetime.fromtimestamp(at, tz=dt.UTC).date()


def parse_time(value: object) -> float | None:
    """Read RFC 3339 text, or seconds or milliseconds since the epoch.

    Args:
        value: Text such as ``2026-02-13T01:43:49.531Z`` (a missing offset means UTC), or a number.
            Numbers of 10^11 and more are read as milliseconds, of 10^14 and more as microseconds,
            of 10^17 and more as nanoseconds.

    Returns:
        Seconds since the epoch, or ``None`` where the value is no time, or none of an age in
        which anything was recorded.
    """
    if isinstance(value, str):
        return parse_text(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
        for scale in (1e17, 1e14, 1e11):
            if number >= scale:
                return moment(number / (scale / 1e8))
        return moment(number)
    return None


def moment(at: float | None) -> float | None:
    """Return a time as it is, or ``None`` where it lies beyond any calendar in use."""
    return at if at is not None and -LATEST <= at <= LATEST else None


def parse_text(text: str) -> float | None:
    """Read a time written as text, as :func:`parse_time` does."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return _unusual(text)
    if found.tzinfo is None:
        found = found.replace(tzinfo=dt.UTC)
    at = found.timestamp()
    return at if -LATEST <= at <= LATEST else None


def _unusual(text: str) -> float | None:
    """Read a number written as text, or a time with its zone spelled out (``… +0000 UTC``)."""
    stripped = text.strip()
    if stripped.endswith((" UTC", " GMT")):
        return parse_text(stripped[:-4].rstrip())
    try:
        return parse_time(float(stripped))
    except ValueError:
        return None
