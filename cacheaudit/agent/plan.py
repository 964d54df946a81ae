"""The seam of whatever changes requests before they are sent, and the memory of logical calls.

A logical call is one call of the program; its retries are attempts of it. It is planned once: a
retry sends what the first attempt sent.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from cacheaudit.agent.scope import Scope
from cacheaudit.model.call import Call

_KEPT: Final = 4096


class Outgoing(msgspec.Struct, frozen=True):
    """A request that is about to be sent.

    Attributes:
        body: Its JSON; not to be changed.
        url: Where it goes, as the client names it.
        scope: Session, lane, task and purpose in force.
        logical: Identity of the logical call.
        at: Now, in seconds since the epoch.
    """

    body: Mapping[str, Any]
    url: str
    scope: Scope
    logical: str
    at: float


class Planner(Protocol):
    """Decides what is sent. An exception from either method is counted and changes nothing."""

    def plan(self, request: Outgoing) -> Mapping[str, Any] | None:
        """Return the body to send instead, sharing what does not change; ``None``: send it as is.

        Called once for each logical call, in the caller's thread.
        """
        ...

    def learn(self, call: Call) -> None:
        """Take note of a recorded call; called in the writer's thread."""
        ...


class Logical(msgspec.Struct, frozen=True):
    """A logical call.

    Attributes:
        id: Its identity.
        body: The body that its plan put in place.
        marked: Whether that carries markers, and only ones of the planner's.
    """

    id: str
    body: Mapping[str, Any] | None = None
    marked: bool = False


class LogicalCalls:
    """Finds the logical call that a retry belongs to.

    Calls that end well are forgotten at once; of those that failed the newest are kept.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._lock = threading.Lock()
        self._kept = kept
        self._known: OrderedDict[str, Logical] = OrderedDict()

    def first(self, key: str | None, made: Logical) -> None:
        """Remember a call by what its retries will share."""
        if key is None:
            return
        with self._lock:
            self._known[key] = made
            self._known.move_to_end(key)
            while len(self._known) > self._kept:
                self._known.popitem(last=False)

    def again(self, key: str | None) -> Logical | None:
        """Return the call that a retry belongs to."""
        with self._lock:
            return None if key is None else self._known.get(key)

    def forget(self, key: str | None) -> None:
        """Drop a call that will not be tried again."""
        if key is not None:
            with self._lock:
                self._known.pop(key, None)


def new_id() -> str:
    """Make an identity that is unique in every process."""
    return uuid.uuid4().hex
