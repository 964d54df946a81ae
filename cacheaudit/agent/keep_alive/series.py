"""The refreshes after one real request, in one lane."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from cacheaudit.agent.keep_alive.economy import Stakes
from cacheaudit.agent.keep_alive.policy import Phase, Situation
from cacheaudit.agent.keep_alive.sender import Sender
from cacheaudit.agent.rope import Rope
from cacheaudit.model.call import Call

RUNNING_STOPS: Final = frozenset({"tool_use", "tool_calls", "pause_turn"})
NOT_REAL: Final = frozenset({"keep_alive", "warm_up", "probe", "compaction"})


class Flight(msgspec.Struct, frozen=True):
    """A real request on its way.

    Attributes:
        key: Identity of the attempt.
        session: Session as its scope names it.
        body: What was sent.
        url: Where it went.
        headers: Headers that take part in the cache key.
        sender: What can send it again; ``None`` where nobody will.
        started_at: Request start.
    """

    key: str
    session: str | None
    body: bytes | Rope
    url: str
    headers: Mapping[str, str]
    sender: Sender | None
    started_at: float


class Series:
    """What is known of one real request and of its refreshes. Guarded by the keeper's lock.

    Attributes:
        flight: The real request.
        call: What was recorded of it.
        phase: Whether its agent's tools run.
        stakes: Prices and lifetime; ``None``: not worked out yet.
        replay: Body of the refresh.
        refreshed_at: Start of the request that last renewed the entry.
        refreshes: How many were sent.
        spent: What they cost.
        due_at: When the next one is due; ``None``: none will be sent.
        look_at: When to look again.
        busy: A refresh is on its way.
        replaced: A later real request took its place.
    """

    def __init__(self, flight: Flight, call: Call, due_at: float) -> None:
        self.flight = flight
        self.call = call
        self.phase: Phase = "running"
        self.stakes: Stakes | None = None
        self.replay: dict[str, Any] | None = None
        self.refreshed_at = flight.started_at
        self.refreshes = 0
        self.spent = Decimal(0)
        self.due_at: float | None = due_at
        self.look_at = due_at
        self.busy = False
        self.replaced = False

    def situation(self, now: float, stakes: Stakes, spent_today: Decimal) -> Situation:
        """Describe the moment."""
        start = self.flight.started_at
        return Situation(
            stakes=stakes,
            phase=self.phase,
            elapsed=now - start,
            lives_until=self.refreshed_at + stakes.ttl - start,
            late=max(0.0, now - (now if self.due_at is None else self.due_at)),
            refreshes=self.refreshes,
            spent_today=spent_today,
        )

    def next_due(self, stakes: Stakes) -> None:
        """Set the moment of the next refresh, counted from the start of the last request."""
        self.due_at = self.look_at = self.refreshed_at + stakes.every

    @property
    def is_live(self) -> bool:
        """Whether more refreshes may be sent."""
        return self.due_at is not None

    def stop(self) -> None:
        """Send no more."""
        self.due_at = None
        self.replay = None
        # Neither the body nor the client is needed any more; both may be large.
        self.flight = msgspec.structs.replace(self.flight, body=b"", sender=None)


def phase_of(call: Call) -> Phase:
    """Tell whether the agent goes on by itself: its response still runs, or asks for tools."""
    is_open = bool(call.extra.get("unfinished"))
    return "running" if is_open or call.stop_reason in RUNNING_STOPS else "idle"


def same_line(mine: bytes, theirs: bytes) -> bool:
    """Whether two requests belong to one conversation: same front, same first message."""
    first, second = _opening(mine), _opening(theirs)
    return first is not None and first == second


def _opening(body: bytes) -> tuple[bytes, ...] | None:
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        messages = msgspec.json.decode(fields.get("messages", b"[]"), type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return None
    front = tuple(bytes(fields.get(name, b"")) for name in ("model", "tools", "system"))
    return (*front, bytes(messages[0])) if messages else None
