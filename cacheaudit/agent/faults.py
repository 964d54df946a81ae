"""Counts what went wrong inside the recorder; nothing of it is raised into a caller's call."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Final

_LOG: Final = logging.getLogger("cacheaudit.agent")
_KEPT: Final = 200


class Faults:
    """Counts by place and kind; each kind is logged once, without any content of a request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def __call__(self, place: str, error: BaseException) -> None:
        """Count one fault; never raises."""
        with contextlib.suppress(Exception):
            self.count(f"{place}:{type(error).__name__}")

    def count(self, name: str, number: int = 1) -> None:
        """Count something by its name."""
        with self._lock:
            is_new = name not in self._counts
            if is_new and len(self._counts) >= _KEPT:
                return
            self._counts[name] = self._counts.get(name, 0) + number
        if is_new:
            _LOG.warning("not recorded completely: %s (the call itself is not affected)", name)

    def after_fork(self) -> None:
        """Begin anew in a child process: the lock may be held by a thread that it does not have."""
        self._lock = threading.Lock()
        self._counts = {}

    def counts(self) -> dict[str, int]:
        """Return what was counted."""
        with self._lock:
            return dict(self._counts)
