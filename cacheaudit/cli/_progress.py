"""A progress bar on a terminal's standard error, and nothing anywhere else."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from cacheaudit.report.format import size

_SECONDS_BETWEEN = 0.1
_SECONDS_BEFORE_FIRST = 0.4
_BAR = 24


class Bar:
    """Draws how much was read."""

    def __init__(self, write: Callable[[str], object], tick: Callable[[], float]) -> None:
        self._write = write
        self._tick = tick
        self._last = tick() + _SECONDS_BEFORE_FIRST - _SECONDS_BETWEEN
        self._drawn = 0

    def __call__(self, done: int, whole: int) -> None:
        """Show ``done`` of ``whole`` bytes, at most ten times a second."""
        now = self._tick()
        if now - self._last < _SECONDS_BETWEEN:
            return
        self._last = now
        import shutil

        line = describe(done, whole)[: shutil.get_terminal_size((80, 24)).columns - 1]
        self._write("\r" + line.ljust(self._drawn))
        self._drawn = len(line)

    def clear(self) -> None:
        """Take the bar away."""
        if self._drawn:
            self._write("\r" + " " * self._drawn + "\r")
            self._drawn = 0


def describe(done: int, whole: int) -> str:
    """Draw one state of the bar."""
    if whole <= 0:
        return f"Reading  {size(done)}"
    part = min(1.0, done / whole)
    filled = round(part * _BAR)
    bar = "█" * filled + "░" * (_BAR - filled)
    return f"Reading {bar} {part:4.0%}  {size(done)} of {size(whole)}"


def nothing(done: int, whole: int) -> None:
    """Show nothing."""


@contextlib.contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Give a progress callback for the time of a long piece of work."""
    stream = sys.stderr
    if quiet or stream is None or not stream.isatty():
        yield nothing
        return

    def write(text: str) -> None:
        with contextlib.suppress(OSError, UnicodeEncodeError):
            stream.write(text)
            stream.flush()

    bar = Bar(write, time.monotonic)
    try:
        yield bar
    finally:
        bar.clear()
