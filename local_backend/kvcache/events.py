"""What happens in a cache, counted always and told to whoever listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """What can happen."""

    HIT = "hit"
    MISS = "miss"
    PUBLISH = "publish"
    EVICT = "evict"
    COPY = "copy"
    OFFLOAD = "offload"
    RESTORE = "restore"
    REFUSE = "refuse"
    DROP = "drop"
    """An offload was given up: too many were waiting, or no tier took the page."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: What.
        group: In which group of layers; empty where it concerns all.
        pages: How many pages.
        tokens: How many tokens.
        request: For whom; empty where nobody asked.
        limited_by: For a hit or miss of a model with several groups, the one that allowed least.
    """

    kind: EventKind
    group: str = ""
    pages: int = 0
    tokens: int = 0
    request: str = ""
    limited_by: str = ""


@dataclass(slots=True)
class Count:
    """Sums of one kind of event."""

    events: int = 0
    pages: int = 0
    tokens: int = 0


Listener = Callable[[Event], None]


class Events:
    """Counters by kind, and listeners. Without a listener no event object is made."""

    def __init__(self) -> None:
        self.counts: dict[EventKind, Count] = {kind: Count() for kind in EventKind}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Tell a function of everything from now on; it must not call the cache."""
        self._listeners.append(listener)

    def emit(
        self,
        kind: EventKind,
        pages: int = 0,
        tokens: int = 0,
        request: str = "",
        group: str = "",
        limited_by: str = "",
    ) -> None:
        """Count, and tell the listeners."""
        count = self.counts[kind]
        count.events += 1
        if pages:
            count.pages += pages
        if tokens:
            count.tokens += tokens
        if self._listeners:
            event = Event(kind, group, pages, tokens, request, limited_by)
            for listener in self._listeners:
                listener(event)
