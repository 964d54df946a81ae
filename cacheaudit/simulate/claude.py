"""The prompt cache of the Claude API and of the platforms that carry it.

One entry a marker; a lookup walks back from each marker over at most 20 positions, the marked
content block being the first; a lifetime counts from the start of the request that wrote or read;
an entry can be read once the first response has begun.

Cost: at most four times twenty look-ups a request, whatever its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from cacheaudit.simulate.request import Mark, Outcome, SimRequest

TTL_SECONDS: Final[Mapping[str, float]] = {"5m": 300.0, "1h": 3600.0}
_RUNS: Final = frozenset({"tool_use", "tool_result"})
_NOT_MARKABLE: Final = frozenset({"thinking", "redacted_thinking"})


class ClaudeRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules in force for one model, surface and date; disputed ones are switches.

    Attributes:
        minimum: Tokens that a prefix needs to be cached.
        positions: Positions that a lookup visits, the marked content block included.
        most_markers: Markers allowed in a request, the automatic one included.
        collapse_runs: A run of ``tool_use`` content blocks, or of ``tool_result``, is one position.
        default_ttl: Lifetime of a marker that names none.
        refresh_marked: A request that reads a long prefix also renews the shorter ones it marks.
        ttl_in_key: A marker finds only entries of its own lifetime.
        read_upgrades: A one-hour marker that reads a five-minute entry lengthens it.
        variant_drops_all: A change of thinking or effort drops tools and system too.
        visible_after: Seconds from the first token until an entry can be read.
    """

    minimum: int = 1024
    positions: int = 20
    most_markers: int = 4
    collapse_runs: bool = True
    default_ttl: str = "5m"
    refresh_marked: bool = True
    ttl_in_key: bool = False
    read_upgrades: bool = False
    variant_drops_all: bool = False
    visible_after: float = 0.0


class Entry:
    """What the cache holds of one prefix."""

    __slots__ = ("expires", "readable", "ttl", "writer")

    def __init__(self, ttl: str, expires: float, readable: float, writer: str) -> None:
        self.ttl = ttl
        self.expires = expires
        self.readable = readable
        self.writer = writer


_Key = tuple[str, str, str, bytes]


class ClaudeMachine:
    """State of one cache. Requests must come in order of their start."""

    name = "claude"

    def __init__(self) -> None:
        self._entries: dict[_Key, Entry] = {}

    def step(self, request: SimRequest, rules: ClaudeRules) -> Outcome:
        """Take one request and say what was read and written."""
        marks, refused = _placed(request, rules)
        if refused is not None:
            return Outcome(read=0, writes={}, uncached=request.total, refused=refused)
        notes: set[str] = set()
        if not marks:
            notes.add("no_marker")
        hit, entry = self._look_up(request, marks, rules, notes)
        if entry is not None:
            self._renew(entry, request, rules, marks, hit)
            if rules.refresh_marked:
                self._renew_marked(request, rules, marks, hit)
        return self._write(request, rules, marks, hit, entry, notes)

    def _key(self, request: SimRequest, rules: ClaudeRules, index: int, ttl: str) -> _Key:
        return (
            request.scope,
            request.variant if rules.variant_drops_all else "",
            ttl if rules.ttl_in_key else "",
            request.digests[index],
        )

    def _look_up(
        self, request: SimRequest, marks: list[Mark], rules: ClaudeRules, notes: set[str]
    ) -> tuple[int, Entry | None]:
        """Find the longest readable prefix: from the last marker backwards."""
        for mark in reversed(marks):
            ttl = mark.ttl or rules.default_ttl
            for index in _window(request, mark.index, rules):
                found = self._entries.get(self._key(request, rules, index, ttl))
                if found is None:
                    continue
                if found.readable > request.at:
                    notes.add("not_yet_readable")
                elif found.expires <= request.at:
                    notes.add("expired")
                else:
                    return index, found
        return -1, None

    def _renew(
        self, entry: Entry, request: SimRequest, rules: ClaudeRules, marks: list[Mark], hit: int
    ) -> None:
        if rules.read_upgrades and any(mark.index == hit and mark.ttl == "1h" for mark in marks):
            entry.ttl = "1h"
        entry.expires = max(entry.expires, request.at + TTL_SECONDS[entry.ttl])

    def _renew_marked(
        self, request: SimRequest, rules: ClaudeRules, marks: list[Mark], hit: int
    ) -> None:
        for mark in marks:
            if mark.index >= hit:
                continue
            key = self._key(request, rules, mark.index, mark.ttl or rules.default_ttl)
            found = self._entries.get(key)
            if found is not None and found.readable <= request.at < found.expires:
                found.expires = max(found.expires, request.at + TTL_SECONDS[found.ttl])

    def _write(
        self,
        request: SimRequest,
        rules: ClaudeRules,
        marks: list[Mark],
        hit: int,
        entry: Entry | None,
        notes: set[str],
    ) -> Outcome:
        """Write every marked prefix behind the hit that is long enough, and bill it."""
        sizes = request.sizes
        read = sizes[hit] if hit >= 0 else 0
        readable = request.readable_at + rules.visible_after
        last_long = last = read
        for mark in marks:
            if mark.index <= hit:
                continue
            if sizes[mark.index] < rules.minimum:
                notes.add("below_minimum")
                continue
            ttl = mark.ttl or rules.default_ttl
            self._put(request, rules, mark.index, ttl, readable)
            last = max(last, sizes[mark.index])
            if ttl == "1h":
                last_long = max(last_long, sizes[mark.index])
        writes: dict[str, int] = {}
        if last_long > read:
            writes["1h"] = last_long - read
        if last > last_long:
            writes["5m"] = last - last_long
        return Outcome(
            read=read,
            writes=writes,
            uncached=request.total - last,
            hit=hit,
            hit_from=None if entry is None else entry.writer,
            notes=tuple(sorted(notes)),
        )

    def _put(
        self, request: SimRequest, rules: ClaudeRules, index: int, ttl: str, readable: float
    ) -> None:
        key = self._key(request, rules, index, ttl)
        expires = request.at + TTL_SECONDS[ttl]
        old = self._entries.get(key)
        if old is not None and old.expires > request.at:
            # Written twice at once: readable as soon as the first of both is.
            readable = min(readable, old.readable)
            if old.expires > expires:
                ttl, expires = old.ttl, old.expires
        self._entries[key] = Entry(ttl, expires, readable, request.id)


def _window(request: SimRequest, index: int, rules: ClaudeRules) -> list[int]:
    """List the content blocks that a lookup from ``index`` may end on, longest prefix first.

    Inside a run that counts as one position every content block may be the end of an entry.
    """
    kinds = request.kinds
    visited: list[int] = []
    positions = 0
    run: str | None = None
    while index >= 0:
        kind = kinds[index]
        if not (rules.collapse_runs and kind in _RUNS and kind == run):
            positions += 1
            if positions > rules.positions:
                break
        visited.append(index)
        run = kind
        index -= 1
    return visited


def _placed(request: SimRequest, rules: ClaudeRules) -> tuple[list[Mark], str | None]:
    """Resolve the automatic marker and check what the provider would refuse."""
    explicit = [mark for mark in request.marks if not mark.automatic]
    automatic = next((mark for mark in request.marks if mark.automatic), None)
    marks = list(explicit)
    if automatic is not None:
        index = automatic.index
        while index >= 0 and request.kinds[index] in _NOT_MARKABLE:
            index -= 1
        same = next((mark for mark in explicit if mark.index == index), None)
        if same is not None:
            if (same.ttl or rules.default_ttl) != (automatic.ttl or rules.default_ttl):
                return [], "the last content block is marked with another lifetime"
        elif index >= 0:
            marks.append(Mark(index, automatic.ttl, automatic=True))
    if len(marks) > rules.most_markers:
        return [], f"{len(marks)} markers where {rules.most_markers} are allowed"
    marks.sort(key=lambda mark: mark.index)
    short = False
    for mark in marks:
        ttl = mark.ttl or rules.default_ttl
        if ttl not in TTL_SECONDS:
            return [], f"unknown lifetime {ttl!r}"
        if ttl == "1h" and short:
            return [], "a one-hour marker stands behind a five-minute one"
        short = short or ttl == "5m"
    return marks, None
