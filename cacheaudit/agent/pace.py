"""Tells the writer when to work, so that it does not compete with those whose calls it records.

Threads of one Python process take turns at running. A caller runs just before its request is sent
and just after its response has come; in between it waits for the network. The writer therefore
works when nothing has begun or ended for a moment; it stops waiting for that when somebody wants
the outcome, when too much is waiting, or when it has waited long enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """The moment of the latest activity, and the patience of the writer.

    Args:
        quiet: Seconds without activity after which the writer may work.
        patience: Seconds after which it works anyway.
        is_crowded: Whether so much waits that there is no time to lose.
    """

    def __init__(self, quiet: float, patience: float, is_crowded: Callable[[], bool]) -> None:
        self._quiet = quiet
        self._patience = patience
        self._is_crowded = is_crowded
        self._latest = 0.0
        self.urgent = threading.Event()

    @property
    def is_pressing(self) -> bool:
        """Whether there is no time to wait for a quiet moment."""
        return self.urgent.is_set() or self._is_crowded()

    def touch(self) -> None:
        """Note that a call begins or ends."""
        self._latest = time.monotonic()

    def deadline(self) -> float:
        """Return until when something that comes now may be put off."""
        return time.monotonic() + self._patience

    def wait(self, deadline: float) -> None:
        """Wait for a quiet moment, but not beyond the deadline."""
        while not self.is_pressing:
            now = time.monotonic()
            left = min(self._latest + self._quiet, deadline) - now
            if left <= 0:
                # Whoever waits for its turn gets it now, and not in the middle of a piece of work.
                time.sleep(0)
                return
            self.urgent.wait(left)
