"""The Claude machine for lanes of which only sizes are known, without building requests.

A lane that grows at its end and is marked at its end needs no identities: each call has one entry,
and a lookup walks back over the calls before it. Gives what :mod:`cacheaudit.simulate.sizes` and
the machine give for the same calls, several times faster; a test compares both.
"""

from __future__ import annotations

from cacheaudit.model.call import Call, Span
from cacheaudit.simulate.build import Refusal
from cacheaudit.simulate.claude import ClaudeRules, Entry
from cacheaudit.simulate.request import Outcome
from cacheaudit.simulate.sizes import NOTHING, Activity, Told, doubt_of, keep, latest, ttl_of


class _Place:
    """The end of a call's cached prefix, with what each cache holds of it."""

    __slots__ = ("behind", "entries", "size")

    def __init__(self, size: int, behind: _Place | None) -> None:
        self.size = size
        self.behind = behind
        self.entries: dict[str, Entry] = {}


class _Step:
    """One call of a lane."""

    __slots__ = ("cached", "place", "readable", "span", "ttl")

    def __init__(self, told: Told, ttl: str | None, place: _Place) -> None:
        self.span: Span = told.span
        self.readable: float = told.readable
        self.ttl = ttl
        self.cached: int = place.size
        self.place = place


class QuickLanes:
    """Caches of lanes whose calls have no bodies.

    Args:
        activity: Notes every call, whoever builds its request.
    """

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._lanes: dict[tuple[str, str], list[_Step]] = {}

    def play(self, call: Call, told: Told, rules: ClaudeRules) -> Outcome | Refusal:
        """Predict one call; it must not start before those played already."""
        steps = self._lanes.setdefault((call.session, call.lane), [])
        parent = latest(steps, told.span.high)
        place = _place(told, None if parent is None else parent.place)
        ttl = ttl_of(told.usage) or (parent.ttl if parent is not None else None)
        doubt = doubt_of(call, told, NOTHING, parent, self._activity)
        keep(steps, _Step(told, ttl, place))
        self._activity.note(told, call)
        label = ttl or rules.default_ttl
        if label not in rules.ttl_seconds:
            why = f"unknown lifetime {label!r}"
            return doubt or Outcome(read=0, writes={}, uncached=told.total, refused=why)
        outcome = _serve(call, told, rules, place, label)
        return doubt or outcome


def _place(told: Told, before: _Place | None) -> _Place:
    """Extend the prefix of the call before; one that shrank shares nothing that is known."""
    if before is None or told.cached < before.size:
        return _Place(told.cached, None)
    return before if told.cached == before.size else _Place(told.cached, before)


def _serve(call: Call, told: Told, rules: ClaudeRules, place: _Place, label: str) -> Outcome:
    at, scope = told.span.high, told.scope
    hit, entry, notes = _look_up(place, scope, at, rules.positions)
    read = 0
    if hit is not None and entry is not None:
        read = hit.size
        entry.expires = max(entry.expires, at + rules.ttl_seconds[entry.ttl])
    if place.size < rules.minimum:
        notes.add("below_minimum")
        return _outcome(told, read, 0, label, entry, notes)
    if hit is not place:
        _put(call, told, rules, place, label)
    return _outcome(told, read, place.size - read, label, entry, notes)


def _look_up(
    place: _Place, scope: str, at: float, positions: int
) -> tuple[_Place | None, Entry | None, set[str]]:
    notes: set[str] = set()
    found: _Place | None = place
    for _ in range(positions):
        if found is None:
            break
        entry = found.entries.get(scope)
        if entry is not None:
            if entry.readable > at:
                notes.add("not_yet_readable")
            elif entry.expires <= at:
                notes.add("expired")
            else:
                return found, entry, notes
        found = found.behind
    return None, None, notes


def _put(call: Call, told: Told, rules: ClaudeRules, place: _Place, label: str) -> None:
    at = told.span.high
    expires, readable = at + rules.ttl_seconds[label], told.readable + rules.visible_after
    old = place.entries.get(told.scope)
    if old is None or old.expires <= at:
        place.entries[told.scope] = Entry(label, expires, readable, call.id)
        return
    old.readable = min(readable, old.readable)
    if expires > old.expires:
        old.ttl, old.expires = label, expires


def _outcome(
    told: Told, read: int, written: int, label: str, entry: Entry | None, notes: set[str]
) -> Outcome:
    return Outcome(
        read=read,
        writes={"1h" if label == "1h" else "5m": written} if written > 0 else {},
        uncached=told.total - read - written,
        hit_from=None if entry is None else entry.writer,
        notes=tuple(sorted(notes)),
    )
