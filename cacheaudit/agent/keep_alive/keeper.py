"""Holds the series of every lane, and does what is due. Driven by ``timer``, or by a test.

Called from three sides: the thread that sends a request (:meth:`Keeper.sent`), the recorder's
writer (:meth:`Keeper.learn`), and whoever keeps the time (:meth:`Keeper.tick`). The first two do
next to nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import msgspec

from cacheaudit.agent.attempt import Attempt
from cacheaudit.agent.faults import Faults
from cacheaudit.agent.keep_alive.economy import Ineligible, Stakes, stakes
from cacheaudit.agent.keep_alive.notes import Notes
from cacheaudit.agent.keep_alive.policy import Decision, decide
from cacheaudit.agent.keep_alive.replay import replay, replay_url
from cacheaudit.agent.keep_alive.sender import Sender
from cacheaudit.agent.keep_alive.series import NOT_REAL, Flight, Series, phase_of, same_line
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.agent.scope import Scope
from cacheaudit.dialects.detect import normalise
from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.store.records import Decision as Entry

_FLIGHTS: Final = 512
_SERIES: Final = 128
_SOONEST: Final = 10.0
_AGAIN: Final = 1.0
_KEY_HEADERS: Final = ("anthropic-beta",)
Lane = tuple[str, str]


class KeeperState(msgspec.Struct, frozen=True):
    """What became of refreshes so far.

    Attributes:
        sent: Refreshes that were sent.
        verified: Those of them that read the entry and wrote nothing.
        spent: What they cost.
        stopped: Series that ended, by reason.
    """

    sent: int
    verified: int
    spent: Decimal
    stopped: dict[str, int]


class Keeper:
    """Keeps entries alive.

    Args:
        settings: When to.
        book: Prices.
        now: The clock.
        faults: Counts what fails.
        write: Writes decisions to the store; may raise.
        history: Reads from the store what pauses there were and what was spent today, before the
            first decision, and returns what notes it down; may raise.
        start: Runs something in a thread of its own.
        wake: Told that there may be something to do earlier than before.
    """

    def __init__(
        self,
        settings: KeepAlive,
        book: PriceBook,
        now: Callable[[], float],
        faults: Faults,
        write: Callable[[list[Entry]], None],
        history: Callable[[], Callable[[Notes], None]],
        start: Callable[[Callable[[], None]], None],
        wake: Callable[[], None],
    ) -> None:
        self.settings = settings
        self._book = book
        self._now = now
        self._faults = faults
        self._write = write
        self._history: Callable[[], Callable[[Notes], None]] | None = history
        self._start = start
        self._wake = wake
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._flights: OrderedDict[str, Flight] = OrderedDict()
        self._series: OrderedDict[Lane, Series] = OrderedDict()
        self.notes = Notes(self.settings)

    def after_fork(self) -> None:
        """Begin anew in a child process: what the parent keeps alive is the parent's."""
        self._begin()

    @property
    def state(self) -> KeeperState:
        """What became of refreshes so far."""
        with self._lock:
            notes = self.notes
            return KeeperState(notes.sent, notes.verified, notes.total, dict(notes.stopped))

    def sent(self, attempt: Attempt) -> None:
        """Take note of a request that is being sent."""
        scope, body = attempt.scope, attempt.packed
        sender: Sender | None = attempt.sender
        if body is None or sender is None or attempt.kind != "call" or scope.purpose in NOT_REAL:
            return
        headers = {name: attempt.sent[name] for name in _KEY_HEADERS if name in attempt.sent}
        flight = Flight(
            attempt.key,
            scope.session,
            body,
            replay_url(str(attempt.url)),
            headers,
            sender,
            attempt.started_at,
        )
        with self._lock:
            self._flights[attempt.key] = flight
            if len(self._flights) > _FLIGHTS:
                self._flights.popitem(last=False)

    def learn(self, call: Call) -> None:
        """Take note of a recorded call: it ends its lane's series and begins another one."""
        key = (call.dedupe_key or "").removeprefix("recorder:")
        is_open = bool(call.extra.get("unfinished"))
        with self._lock:
            flight = self._flights.get(key) if is_open else self._flights.pop(key, None)
            if flight is None or call.purpose in NOT_REAL or call.error is not None:
                return
            lane = (call.session, call.lane)
            known = self._series.get(lane)
            if known is not None and known.flight.key == key:
                self._goes_on(known, call)
            else:
                self._observe(lane, call)
                self._replace(lane, known, Series(flight, call, flight.started_at + _SOONEST))
            self._series[lane].phase = phase_of(call)
        self._wake()

    def _goes_on(self, series: Series, call: Call) -> None:
        series.call = call
        series.stakes = None

    def _observe(self, lane: Lane, call: Call) -> None:
        """Learn the length of the pause that this call ended."""
        at, known = call.started_at, self._series.get(lane)
        if at is not None and known is not None:
            self.notes.gaps[known.phase].add(at - known.flight.started_at)

    def _replace(self, lane: Lane, known: Series | None, made: Series) -> None:
        if known is not None:
            known.replaced = True
            known.stop()
            self.notes.ended(lane, known, made.call, self._now())
        self._series[lane] = made
        self._series.move_to_end(lane)
        if len(self._series) > _SERIES:
            old, dropped = self._series.popitem(last=False)
            self.notes.ended(old, dropped, None, self._now())

    def settle(self, session: str) -> None:
        """Say that the run of a session is over: no tool of it runs any more."""
        with self._lock:
            for (name, _), series in self._series.items():
                if name == session:
                    series.phase = "idle"
                    if self.settings.mode == "running" and series.due_at is not None:
                        series.stop()
                        self.notes.stopped["settled"] += 1

    def tick(self) -> float | None:
        """Do what is due.

        Returns:
            Seconds until there is something to do again; ``None``: nothing is waited for.
        """
        with self._turn:
            return self._tick(self._now())

    def _tick(self, now: float) -> float | None:
        with self._lock:
            due = [
                (lane, series)
                for lane, series in self._series.items()
                if series.due_at is not None and series.look_at <= now and not series.busy
            ]
        if due:
            self._load()
        for lane, series in due:
            try:
                self._attend(lane, series, now)
            except Exception as error:
                self._faults("keep_alive", error)
                self._stop(series, "fault")
        self.flush()
        with self._lock:
            waits = [
                s.look_at for s in self._series.values() if s.due_at is not None and not s.busy
            ]
            is_busy = any(s.busy for s in self._series.values())
        if not waits:
            return 60.0 if is_busy else None
        return max(0.0, min(waits) - self._now())

    def _load(self) -> None:
        history, self._history = self._history, None
        if history is not None:
            try:
                note = history()  # takes its time; the lock is not held
                with self._lock:
                    note(self.notes)
            except Exception as error:
                self._faults("keep_alive_history", error)

    def _attend(self, lane: Lane, series: Series, now: float) -> None:
        known = self._stakes(series)
        if known is None or series.due_at is None:
            return
        if series.due_at > now:
            series.look_at = series.due_at
            return
        if self._is_under_way(lane, series) and now - series.due_at <= known.grace:
            series.look_at = now + _AGAIN
            return
        with self._lock:
            spent = self.notes.spent_on(now)
            situation = series.situation(now, known, spent)
            found = decide(situation, self.settings, self.notes.gaps[series.phase])
        found = self._asked(msgspec.structs.replace(found, session=lane[0], lane=lane[1]))
        with self._lock:
            body, flight = series.replay, series.flight
            if not series.is_live or body is None or flight.sender is None:
                return
            self.notes.decided(found, situation, series.call, now)
            if found.action == "stop":
                series.stop()
                self.notes.stopped[found.reason] += 1
                return
            series.busy = True
            series.refreshes += 1
            self.notes.sent += 1
            # Several may be on their way at once: each counts as spent until it is known better.
            self.notes.spend(now, known.refresh_cost)
        send = flight.sender.send
        scope = Scope(*lane, series.call.task, "keep_alive")
        self._start(
            lambda: self._refresh(
                lane, series, known, lambda: send(flight.url, body, flight.headers, scope)
            )
        )

    def _asked(self, found: Decision) -> Decision:
        """Let the user's hook have the last word on a refresh."""
        hook = self.settings.on_decision
        if hook is None or found.action == "stop":
            return found
        try:
            answer = hook(found)
        except Exception as error:
            self._faults("on_decision", error)
            return found
        if answer != "stop":
            return found
        return msgspec.structs.replace(found, action="stop", reason="vetoed")

    def _stakes(self, series: Series) -> Stakes | None:
        """Work out lifetime and prices of a series, once for what is known of its call."""
        if series.stakes is not None:
            return series.stakes
        found = self._worked_out(series)
        if isinstance(found, Ineligible):
            self._stop(series, found.reason)
            return None
        with self._lock:
            series.stakes = found
            if series.due_at is not None:
                series.next_due(found)
        return found

    def _worked_out(self, series: Series) -> Stakes | Ineligible:
        try:
            body = msgspec.json.decode(bytes(series.flight.body))
        except (msgspec.DecodeError, RecursionError):
            return Ineligible("body_unreadable")
        if not isinstance(body, dict):
            return Ineligible("body_unreadable")
        made = replay(body, series.call.surface)
        if isinstance(made, Ineligible):
            return made
        series.replay = made.body
        return stakes(
            series.call,
            body,
            self._book,
            every=self.settings.refresh_after,
            output_tokens=made.output_tokens,
        )

    def _is_under_way(self, lane: Lane, series: Series) -> bool:
        """Whether a later request of the same conversation is being answered already."""
        mine = series.flight
        with self._lock:
            others = [
                flight
                for flight in self._flights.values()
                if flight.key != mine.key
                and flight.started_at > mine.started_at
                and flight.session in (None, lane[0])
            ]
        return any(same_line(bytes(mine.body), bytes(other.body)) for other in others)

    def _refresh(self, lane: Lane, series: Series, known: Stakes, send: Callable[[], Any]) -> None:
        """Send one refresh, and look at what came back."""
        started = self._now()
        usage: Usage | None = None
        reason = "failed"
        try:
            usage = _usage(send())
            reason = verify(usage)
        except Exception as error:
            self._faults("refresh", error)
        with self._lock:
            series.busy = False
            cost = None if usage is None else known.paid(usage)
            if cost is not None:
                series.spent += cost
            self.notes.spend(started, (cost or Decimal(0)) - known.refresh_cost)
            self.notes.refreshed(lane, series, usage, reason, cost, started)
            if series.due_at is not None:
                if reason == "verified":
                    series.refreshed_at = started
                    series.next_due(known)
                else:
                    series.stop()
                    self.notes.stopped[reason] += 1
        self._wake()

    def _stop(self, series: Series, reason: str) -> None:
        with self._lock:
            series.stop()
            self.notes.stopped[reason] += 1

    def flush(self) -> None:
        """Write what was decided to the store."""
        with self._lock:
            entries, self.notes.entries = self.notes.entries, []
        if entries:
            try:
                self._write(entries)
            except Exception as error:
                self._faults("decisions", error)

    def close(self) -> None:
        """Stop everything, and write down how each series ended."""
        with self._lock:
            now = self._now()
            for lane, series in self._series.items():
                series.stop()
                self.notes.ended(lane, series, None, now)
            self._series.clear()
            self._flights.clear()
        self.flush()


def verify(usage: Usage | None) -> str:
    """Say whether a refresh did what it was for: it read the entry and wrote nothing."""
    if usage is None or usage.cache_read is None:
        return "unverified"
    if usage.cache_write:
        return "wrote"
    return "verified" if usage.cache_read > 0 else "read_nothing"


def _usage(answer: Any) -> Usage | None:
    found = answer.get("usage") if isinstance(answer, dict) else None
    return normalise(found) if isinstance(found, dict) else None
