"""A clock that rises by a millisecond whenever somebody looks at it."""

from __future__ import annotations


class Ticking:
    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 0.001
        return self._now
