"""Times of day without a date, as people write them beside rows of a log."""

from __future__ import annotations

import re
from typing import Final

CLOCK: Final = re.compile(r"^(?:(\d+):)?(\d{1,4}):(\d{2}(?:\.\d+)?)$")


class RelativeClock:
    """Reads clock times without a date, and notices when they begin again.

    ``59:30`` followed by ``00:10`` is forty seconds later, not an hour earlier; a small step back
    is only a row out of order.
    """

    LATEST: Final = 1e8
    """Numbers below count from an unknown moment: as a date they would lie in the early 1970s."""

    def __init__(self) -> None:
        self._base = 0.0
        self._last = 0.0

    def seconds(self, match: re.Match[str], *, advance: bool) -> float:
        """Return seconds since the first row's beginning.

        Args:
            match: Hours (or nothing), minutes and seconds.
            advance: Whether this time moves the clock on; ends of calls do not.
        """
        period = 3600.0 if match[1] is None else 86_400.0
        value = int(match[1] or 0) * 3600.0 + int(match[2]) * 60.0 + float(match[3])
        base = self._base
        if self._last - base - value > period / 2 and self._last - base < period:
            base += period
        if advance:
            self._base, self._last = base, base + value
        return base + value
