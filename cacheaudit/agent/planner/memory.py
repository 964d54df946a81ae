"""Sessions, and the lines of conversation in them. Bounded in number and in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from cacheaudit.agent.planner.account import Account
from cacheaudit.agent.planner.gaps import Gaps
from cacheaudit.agent.planner.layout import Layout, common
from cacheaudit.agent.planner.notes import Notes
from cacheaudit.agent.planner.policy import PlanPolicy

_SESSIONS: Final = 64
_LINES: Final = 12
_BYTES: Final = 64 << 20


class Cut(msgspec.Struct, frozen=True):
    """The steady text before and behind a part of a system block that changes."""

    head: str
    tail: str


class Line:
    """One line of conversation.

    Attributes:
        name: Unique inside the session.
        layout: Its last request; ``None`` where its bytes were given up.
        requests: How many were sent.
        marks: Blocks that were marked in the last of them, with their lifetimes.
        written: Keys that the last request writes.
        logical: Identity of the last request.
        answer: Provider's id of the latest answer that is known.
        loose: Blocks at the end of the request before last that the last one did not repeat.
        steady_loose: That number was the same twice.
        churn: For tools, and for system: how often in a row they changed.
        surface: Platform, as a recorded call told it.
        shown: Text of the system blocks of the last request, as the caller gave it.
        cuts: What surrounds the changing part of a system block, by its index.
    """

    __slots__ = (
        "answer",
        "churn",
        "cuts",
        "layout",
        "logical",
        "loose",
        "marks",
        "name",
        "requests",
        "shown",
        "steady_loose",
        "surface",
        "written",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.layout: Layout | None = None
        self.requests = 0
        self.marks: tuple[tuple[int, str], ...] = ()
        self.written: tuple[bytes, ...] = ()
        self.logical = ""
        self.answer: str | None = None
        self.loose = 0
        self.steady_loose = False
        self.churn = {"tools": 0, "system": 0}
        self.surface: str | None = None
        self.shown: tuple[str, ...] = ()
        self.cuts: dict[int, Cut] = {}


class Latest:
    """The lines that the latest calls belong to.

    Args:
        kept: How many calls are kept.
    """

    def __init__(self, kept: int = 4096) -> None:
        self._kept = kept
        self._lines: OrderedDict[str, Line] = OrderedDict()

    def put(self, logical: str, line: Line) -> None:
        """Note which line a call belongs to."""
        self._lines[logical] = line
        while len(self._lines) > self._kept:
            self._lines.popitem(last=False)

    def get(self, logical: str) -> Line | None:
        """Return the line of a call."""
        return self._lines.get(logical)


class SessionMemory:
    """What is remembered of one session.

    Attributes:
        number: Tells it apart from every other one of this program.
        lines: Its lines of conversation, the latest last.
        account: What its markers have saved.
        gaps: Its pauses.
        notes: What was done, for the report.
        tools: Tools in the order in which they were seen first, by name.
        inputs: Arguments of tool calls as they were sent first, by the id of the call.
        route: Routing key of its requests, by the front that they share.
    """

    def __init__(self, policy: PlanPolicy, wide: Gaps, number: int = 0) -> None:
        self.number = number
        self.lines: OrderedDict[str, Line] = OrderedDict()
        self.account = Account(policy.risk, strict=policy.never_behind)
        self.gaps = Gaps(wide)
        self.notes = Notes()
        self.tools: dict[str, Any] = {}
        self.inputs: OrderedDict[str, Any] = OrderedDict()
        self.route: dict[str, str] = {}
        self._made = 0

    def line(self, name: str | None, texts: Sequence[bytes], family: str) -> Line:
        """Return the line that a request belongs to, by its name or else by its content.

        Args:
            name: Name of the lane, where it is known.
            texts: Messages of the request as JSON.
            family: What else must be equal: lines of different models are different lines.
        """
        if name is not None:
            return self._get(f"{family}:{name}")
        best, most = None, 0
        for line in reversed(self.lines.values()):
            if line.layout is None or not line.name.startswith(f"{family}#"):
                continue
            shared = common(texts, line.layout.messages)
            if shared > most:
                best, most = line, shared
        if best is None:
            self._made += 1
            return self._get(f"{family}#{self._made}")
        self.lines.move_to_end(best.name)
        return best

    def layouts(self) -> Iterator[Layout]:
        """Yield the last requests of its lines, the latest first."""
        for line in reversed(self.lines.values()):
            if line.layout is not None:
                yield line.layout

    def donor(self, texts: Sequence[bytes], line: Line) -> Layout | None:
        """Return the request of any line that shares most with a new one."""
        best, most = line.layout, -1 if line.layout is None else common(texts, line.layout.messages)
        if most >= len(texts) - 4 and most >= 0:
            return best
        for other in reversed(self.lines.values()):
            if other.layout is not None and other is not line:
                shared = common(texts, other.layout.messages)
                if shared > most:
                    best, most = other.layout, shared
        return best

    def _get(self, name: str) -> Line:
        line = self.lines.get(name)
        if line is None:
            line = self.lines[name] = Line(name)
            while len(self.lines) > _LINES:
                self.lines.popitem(last=False)
        self.lines.move_to_end(name)
        return line

    @property
    def weight(self) -> int:
        """Bytes of the requests that are kept."""
        return sum(line.layout.weight for line in self.lines.values() if line.layout is not None)


class Memory:
    """The sessions that are remembered; the ones used least recently go first.

    Args:
        policy: Settings of the planner.
        sessions: How many are kept.
        limit: Bytes of requests that are kept, of all sessions together.
    """

    def __init__(self, policy: PlanPolicy, sessions: int = _SESSIONS, limit: int = _BYTES) -> None:
        self._policy = policy
        self._most = sessions
        self._limit = limit
        self._sessions: OrderedDict[str, SessionMemory] = OrderedDict()
        self.wide = Gaps()
        self._made = 0

    def session(self, name: str) -> SessionMemory:
        """Return what is known of a session, making it where it is new."""
        found = self._sessions.get(name)
        if found is None:
            self._made += 1
            found = self._sessions[name] = SessionMemory(self._policy, self.wide, self._made)
            while len(self._sessions) > self._most:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(name)
        return found

    def known(self, name: str) -> SessionMemory | None:
        """Return what is known of a session, if anything is."""
        return self._sessions.get(name)

    def trim(self) -> None:
        """Give up the bytes of the least recently used lines beyond the limit."""
        left = sum(session.weight for session in self._sessions.values()) - self._limit
        for session in self._sessions.values():
            for line in session.lines.values():
                if left <= 0:
                    return
                if line.layout is not None:
                    left -= line.layout.weight
                    line.layout = None
