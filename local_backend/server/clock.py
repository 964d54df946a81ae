"""Time, as the rules and the answers see it. With the manual clock an hour passes in a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from local_backend.server.errors import InvalidRequestError

_NANO = 1_000_000_000


class Clock(Protocol):
    """Seconds since 1970."""

    @property
    def manual(self) -> bool:
        """Whether clients may set it."""
        ...

    def now(self) -> float:
        """The present moment."""
        ...


class SystemClock:
    """The machine's time at the start, moved on by a clock that never jumps.

    Args:
        wall: Nanoseconds since 1970; read once.
        steady: Nanoseconds from anywhere.
    """

    manual = False

    def __init__(
        self,
        wall: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._steady = steady
        self._origin = wall() - steady()

    def now(self) -> float:
        """The present moment."""
        return (self._origin + self._steady()) / _NANO


class ManualClock:
    """Stands still until somebody moves it; never runs backwards.

    Args:
        start: Seconds at the beginning.
    """

    manual = True

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """The present moment."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += max(seconds, 0.0)

    def reach(self, moment: float) -> None:
        """Let time pass until a moment, unless it has passed already."""
        self._now = max(self._now, moment)


def parse_moment(text: str, header: str) -> float:
    """Seconds of a moment given as a number, or as RFC 3339.

    Raises:
        InvalidRequestError: It is neither.
    """
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidRequestError(header, "must be seconds or an RFC 3339 time") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    if not -1e12 < seconds < 1e12:
        raise InvalidRequestError(header, "is out of range")
    return seconds
