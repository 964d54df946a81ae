"""Writes recorded calls to the store, and does not give up at the first trouble."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from cacheaudit.agent.faults import Faults
from cacheaudit.agent.sizes import Made

if TYPE_CHECKING:
    from cacheaudit.store.records import Entry, WriteCount

SOURCE: Final = "recorder"
# Waits between attempts at a batch that the store refuses; SQLite itself waits for a lock first.
_PATIENCE: Final = (0.1, 0.5, 2.0, 5.0, 5.0, 5.0)


class CallStore(Protocol):
    """What the ledger needs of a store."""

    def commit(self, batch: Sequence[Entry]) -> WriteCount:
        """Write a batch, all or nothing."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


class Ledger:
    """One store, opened when it is first needed; used by the writer's thread alone.

    Args:
        open_store: Opens it.
        faults: Counts what fails.
        hurry: Set when the program wants to end: waiting stops.
        project: Project that sessions are filed under.

    Attributes:
        lost: Calls that the store refused for good.
    """

    def __init__(
        self,
        open_store: Callable[[], CallStore],
        faults: Faults,
        hurry: threading.Event,
        project: str | None = None,
    ) -> None:
        self._open_store = open_store
        self._faults = faults
        self._hurry = hurry
        self._project = project
        self._store: CallStore | None = None
        self.lost = 0
        self.written = 0

    def store(self) -> CallStore:
        """Return the store, opening it where it is not open."""
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def close(self) -> None:
        """Close the store; the next write opens it again."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def write(self, calls: Sequence[Made]) -> None:
        """Write calls; what is refused again and again is counted as lost."""
        # Imported by the writer's thread: it takes half a second that no caller should wait for.
        from cacheaudit.store.records import Entry

        left = [
            Entry(call=made.call, source=SOURCE, project=self._project, tokens=made.tokens)
            for made in calls
        ]
        for wait in (*_PATIENCE, None):
            left = self._some(left)
            if not left or wait is None or self._hurry.wait(wait):
                break
        if left:
            left = self._some(left)
        self.lost += len(left)

    def _some(self, left: list[Entry]) -> list[Entry]:
        """Write as much as can be written; return what the store may take later."""
        if self._commit(left):
            return []
        if len(left) == 1:
            return left
        refused = [entry for entry in left if not self._commit([entry])]
        if len(refused) == len(left):
            return left  # the store itself is in trouble
        self.lost += len(refused)
        return []

    def _commit(self, batch: list[Entry]) -> bool:
        try:
            self.store().commit(batch)
        except Exception as error:
            self._faults("store", error)
            return False
        self.written += len(batch)
        return True
