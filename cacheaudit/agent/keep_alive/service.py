"""Keep-alive as part of an audit: the keeper, its timer, and the store behind both."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from cacheaudit.agent.attempt import Attempt
from cacheaudit.agent.faults import Faults
from cacheaudit.agent.keep_alive.gaps import pauses
from cacheaudit.agent.keep_alive.keeper import Keeper, KeeperState
from cacheaudit.agent.keep_alive.notes import REFRESHED, Notes
from cacheaudit.agent.keep_alive.sender import Origin
from cacheaudit.agent.keep_alive.series import RUNNING_STOPS
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.agent.keep_alive.timer import Timer
from cacheaudit.agent.recorder import Recorder
from cacheaudit.model.call import Call
from cacheaudit.pricing.book import PriceBook
from cacheaudit.store.records import Decision

if TYPE_CHECKING:
    from cacheaudit.agent.ledger import Ledger

_STARTS: Final = 4_000
_DAY: Final = 86_400
_PATIENCE: Final = 10.0


class KeepAliveService:
    """Watches requests and keeps their entries alive.

    Args:
        settings: When to.
        recorder: Whose writer reads and writes the store.
        faults: Counts what fails.
        now: The clock.
        owner: Whose scopes tell what a request is for.
        book: Prices.
    """

    def __init__(
        self,
        settings: KeepAlive,
        recorder: Recorder,
        faults: Faults,
        now: Callable[[], float],
        owner: str,
        book: PriceBook | None = None,
    ) -> None:
        self._recorder = recorder
        self._now = now
        self._owner = owner
        self._born = now()
        self._timer = Timer(self._tick, faults)
        self.keeper = Keeper(
            settings,
            book or PriceBook(genai_prices=False),
            now,
            faults,
            write=self._write,
            history=self._recall,
            start=self._timer.start,
            wake=self._timer.wake,
        )
        _watch(self)

    def origin(self) -> Origin:
        """Make what stands for a client that is about to be wrapped."""
        return Origin(self._owner)

    def sent(self, attempt: Attempt) -> None:
        """See :meth:`Keeper.sent`."""
        self.keeper.sent(attempt)

    def learn(self, call: Call) -> None:
        """See :meth:`Keeper.learn`."""
        self.keeper.learn(call)

    def settle(self, session: str) -> None:
        """See :meth:`Keeper.settle`."""
        self.keeper.settle(session)

    @property
    def state(self) -> KeeperState:
        """What became of refreshes so far."""
        return self.keeper.state

    def close(self) -> None:
        """End every series and every thread; a request that comes later begins anew."""
        self._timer.close()
        self.keeper.close()
        self._timer.reopen()

    def after_fork(self) -> None:
        """Leave to the parent what is the parent's."""
        self._timer.after_fork()
        self.keeper.after_fork()

    def _tick(self) -> float | None:
        return self.keeper.tick()

    def _write(self, entries: list[Decision]) -> None:
        def write(ledger: Ledger) -> None:
            store: Any = ledger.store()
            store.record_decisions(entries)

        self._recorder.ask(write, _PATIENCE)

    def _recall(self) -> Callable[[Notes], None]:
        """Read the pauses in the store, and what was spent today already."""
        now = self._now()
        midnight = now - now % _DAY

        def read(ledger: Ledger) -> tuple[list[Any], Any]:
            store: Any = ledger.store()
            return store.recent_starts(_STARTS), store.spent(REFRESHED, midnight)

        starts, spent = self._recorder.ask(read, _PATIENCE)
        # What came since then was learned as it came.
        older = sorted((row for row in starts if row[2] < self._born), key=lambda row: row[:3])
        lanes = groupby(older, key=lambda row: row[:2])
        found = [
            pause
            for _, rows in lanes
            for pause in pauses([(at, stop in RUNNING_STOPS) for _, _, at, stop in rows], now)
        ]

        def note(notes: Notes) -> None:
            notes.spend(now, spent)
            for seconds, runs, ended in found:
                notes.gaps["running" if runs else "idle"].add(seconds, ended=ended)

        return note


def _watch(service: KeepAliveService) -> None:
    """Have a service told of forks and of the end of the program, without keeping it alive."""
    found = weakref.ref(service)

    def tell(what: Callable[[KeepAliveService], None]) -> Callable[[], None]:
        def told() -> None:
            if (mine := found()) is not None:
                with contextlib.suppress(Exception):
                    what(mine)

        return told

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=tell(KeepAliveService.after_fork))
    # Registered behind the recorder, so that it ends first: its last decisions are written still.
    atexit.register(tell(KeepAliveService.close))
