"""The clock that everything else is handed: nothing below the commands asks the system."""

from __future__ import annotations

import datetime as dt
import time
from typing import Protocol


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
    moment = dt.datetime.fromtimestamp(at, tz=dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
        Seconds since the epoch, or ``None`` where the value is no time.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        number = float(value)
        for scale in (1e17, 1e14, 1e11):
            if number >= scale:
                return number / (scale / 1e8)
        return number
    if not isinstance(value, str):
        return None
    try:
        moment = dt.datetime.fromisoformat(value)
    except ValueError:
        try:
            return parse_time(float(value))
        except ValueError:
            return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return moment.timestamp()
