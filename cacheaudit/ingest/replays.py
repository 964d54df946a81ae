"""Side lines of a session that repeat messages of its main line, as some agents write them.

The copy has the message's id but a request id of its own, so its key does not show it.
"""

from __future__ import annotations

import msgspec

from cacheaudit.model.call import Session

MAIN = "main"
# Sources that record the provider's own message ids and whose side lines repeat the main line.
REPEATING = frozenset({"claude_code"})


class MainLine:
    """The messages of one session's main line; the main line is read before its side lines."""

    def __init__(self) -> None:
        self._messages: set[str] = set()

    def repeats(self, lane: str, message: str) -> bool:
        """Take a call; say whether it is one of a side line that the main line has already."""
        if lane != MAIN:
            return message in self._messages
        self._messages.add(message)
        return False


def without_replays(session: Session) -> Session:
    """Leave out the calls of side lines that the main line of the same session has."""
    if session.source not in REPEATING:
        return session
    main = {call.id for call in session.calls if call.lane == MAIN}
    calls = tuple(c for c in session.calls if c.lane == MAIN or c.id not in main)
    return (
        session
        if len(calls) == len(session.calls)
        else msgspec.structs.replace(session, calls=calls)
    )
