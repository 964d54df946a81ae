"""What a tier can do, and what it counts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class TierCounters:
    """What a tier did so far.

    Attributes:
        stored: Pages taken in.
        stored_bytes: Their bytes.
        loaded: Pages given back whole.
        loaded_bytes: Their bytes.
        evicted: Pages dropped to make room.
        refused: Pages found but not usable, by reason.
        failures: Calls that failed: disk full, peer gone.
    """

    stored: int = 0
    stored_bytes: int = 0
    loaded: int = 0
    loaded_bytes: int = 0
    evicted: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    failures: int = 0

    def refuse(self, reason: str) -> None:
        """Count a page that may not be used."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


class Tier(Protocol):
    """Keeps records of pages. Every method may be called from two threads.

    A page that cannot be had is a miss, whatever the cause: no method raises for it.
    """

    name: str
    counters: TierCounters
    lock: threading.Lock

    def held(self, keys: Sequence[bytes]) -> set[bytes]:
        """Those of the identities that are there now."""
        ...

    def load(self, key: bytes, layout: bytes) -> bytes | None:
        """The bytes of a page, proved whole; None where it is not there or not usable."""
        ...

    def store(self, key: bytes, layout: bytes, payload: bytes) -> bool:
        """Keep a page. False where there is no room for it, or no way."""
        ...

    def close(self) -> None:
        """Let go of files and connections. What was stored stays where it outlives the process."""
        ...
