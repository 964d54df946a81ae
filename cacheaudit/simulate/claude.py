"""The prompt cache of the Claude API, of the platforms that carry it, and of its imitations.

One entry a marker; a lookup walks back from each marker over at most 20 positions, the marked
content block being the first; a lifetime counts from the start of the request that wrote or read;
an entry can be read once the first response has begun.

Cost: at most four times twenty positions a request, whatever its length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.machine import Kind
from cacheaudit.simulate.request import Mark, Outcome, SimRequest
from cacheaudit.simulate.switches import Switches

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
        variant_drops_all: A change of the settings in ``SimRequest.variant`` drops everything.
        visible_after: Seconds from the first token until an entry can be read.
        write_below_hit: A marked prefix inside what was read becomes an entry of its own.
        automatic: A request may ask the provider to place a marker.
        readable_at_end: An entry can be read only once the response has ended.
        renew_for_reader: A read renews for the lifetime that the reader asks for.
        ttl_seconds: Lifetimes by name.
    """

    minimum: int = 1024
    positions: int = 20
    most_markers: int = 4
    collapse_runs: bool = True
    default_ttl: str = "5m"
    refresh_marked: bool = True
    ttl_in_key: bool = False
    read_upgrades: bool = False
    variant_drops_all: bool = True
    visible_after: float = 0.0
    write_below_hit: bool = True
    automatic: bool = True
    readable_at_end: bool = False
    renew_for_reader: bool = False
    ttl_seconds: Mapping[str, float] = msgspec.field(default_factory=lambda: dict(TTL_SECONDS))


def claude_rules(facts: Rules, switches: Switches) -> ClaudeRules:
    """Put dated facts and switches together."""
    minimum = facts.integer("minimum_tokens")
    if switches.bedrock_minimum == "platform":
        minimum = facts.integer("platform_minimum_tokens", minimum)
    runs = switches.choice("lookback_runs", "one" if facts.flag("collapse_runs") else "each")
    positions = facts.integer("lookback_positions", 20)
    return ClaudeRules(
        minimum=int(switches.number("minimum_tokens", minimum)),
        positions=int(switches.number("lookback_positions", positions)),
        most_markers=facts.integer("most_markers", 4),
        collapse_runs=runs == "one",
        default_ttl=facts.text("default_ttl") or "5m",
        refresh_marked=switches.refresh_marked == "yes",
        ttl_in_key=switches.ttl_in_key == "yes",
        read_upgrades=switches.read_upgrades == "yes",
        visible_after=switches.number("visible_after", facts.value("visible_after", 0)),
        write_below_hit=switches.write_below_hit == "yes",
        automatic=facts.flag("automatic_marker", default=True),
        readable_at_end=facts.text("readable_from") == "response_end",
        renew_for_reader=facts.text("renewed_for") == "reader",
        ttl_seconds=facts.ttl_seconds() or dict(TTL_SECONDS),
    )


class Entry:
    """What the cache holds of one prefix."""

    __slots__ = ("expires", "readable", "ttl", "writer")

    def __init__(self, ttl: str, expires: float, readable: float, writer: str) -> None:
        self.ttl = ttl
        self.expires = expires
        self.readable = readable
        self.writer = writer


_Shelf = dict[bytes, Entry]


class ClaudeMachine:
    """State of one cache. Requests must come in order of their start."""

    name = "claude"

    def __init__(self) -> None:
        self._shelves: dict[tuple[str, str, str], _Shelf] = {}

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
        return self._write(request, rules, marks, hit, entry, notes)

    def _shelf(self, request: SimRequest, rules: ClaudeRules, ttl: str) -> _Shelf:
        """Find the entries that a marker of this request may read."""
        variant = request.variant if rules.variant_drops_all else ""
        key = (request.scope, variant, ttl if rules.ttl_in_key else "")
        return self._shelves.setdefault(key, {})

    def _look_up(
        self, request: SimRequest, marks: list[Mark], rules: ClaudeRules, notes: set[str]
    ) -> tuple[int, Entry | None]:
        """Find the longest readable prefix: from the last marker backwards."""
        best, entry, lowest = -1, None, 0
        for mark in reversed(marks):
            shelf = self._shelf(request, rules, mark.ttl or rules.default_ttl)
            for index in _window(request, mark.index, rules):
                lowest = index if mark is marks[-1] else lowest
                if index <= best:
                    break
                found = shelf.get(request.digests[index])
                if found is None:
                    continue
                if found.readable > request.at:
                    notes.add("not_yet_readable")
                elif found.expires <= request.at:
                    notes.add("expired")
                else:
                    best, entry = index, found
                    break
            # Only where every lifetime has entries of its own can an earlier marker find more.
            if entry is not None and not rules.ttl_in_key:
                break
        if best < lowest - 1:
            shelf = self._shelf(request, rules, marks[-1].ttl or rules.default_ttl)
            if _is_hidden(request, shelf, lowest - 1, best):
                notes.add("beyond_lookback")
        return best, entry

    def _renew(
        self, entry: Entry, request: SimRequest, rules: ClaudeRules, marks: list[Mark], hit: int
    ) -> None:
        """Renew what was read, and the marked prefixes inside it."""
        asked = next((m.ttl or rules.default_ttl for m in marks if m.index >= hit), entry.ttl)
        if rules.read_upgrades and any(m.index == hit and m.ttl == "1h" for m in marks):
            entry.ttl = "1h"
        self._extend(entry, request, rules, asked)
        if not rules.refresh_marked:
            return
        for mark in marks:
            if mark.index >= hit:
                break
            ttl = mark.ttl or rules.default_ttl
            found = self._shelf(request, rules, ttl).get(request.digests[mark.index])
            if found is not None and found.readable <= request.at < found.expires:
                self._extend(found, request, rules, ttl)

    def _extend(self, entry: Entry, request: SimRequest, rules: ClaudeRules, asked: str) -> None:
        ttl = asked if rules.renew_for_reader else entry.ttl
        entry.expires = max(entry.expires, request.at + rules.ttl_seconds[ttl])

    def _write(
        self,
        request: SimRequest,
        rules: ClaudeRules,
        marks: list[Mark],
        hit: int,
        entry: Entry | None,
        notes: set[str],
    ) -> Outcome:
        """Write every marked prefix that is long enough, and bill what lies behind the hit."""
        sizes = request.sizes
        read = sizes[hit] if hit >= 0 else 0
        last_long = last = read
        for mark in marks:
            if sizes[mark.index] < rules.minimum:
                notes.add("below_minimum")
                continue
            ttl = mark.ttl or rules.default_ttl
            if mark.index > hit or (mark.index < hit and rules.write_below_hit):
                self._put(request, rules, mark.index, ttl)
            if mark.index <= hit:
                continue
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

    def _put(self, request: SimRequest, rules: ClaudeRules, index: int, ttl: str) -> None:
        shelf, digest = self._shelf(request, rules, ttl), request.digests[index]
        expires = request.at + rules.ttl_seconds[ttl]
        begins = request.ended_at if rules.readable_at_end else request.readable_at
        readable = begins + rules.visible_after
        old = shelf.get(digest)
        if old is not None and old.expires > request.at:
            # Written twice at once: readable as soon as the first of both is, for the longer time.
            old.readable = min(readable, old.readable)
            if expires > old.expires:
                old.ttl, old.expires = ttl, expires
            return
        shelf[digest] = Entry(ttl, expires, readable, request.id)


def _is_hidden(request: SimRequest, shelf: _Shelf, top: int, best: int) -> bool:
    """Whether an entry longer than the one found lies where no lookup came by.

    The last marker's lookup found nothing down to ``top``; this is the only walk that may go
    through the whole prompt, and only after such a miss.
    """
    at = request.at
    for index in range(top, best, -1):
        found = shelf.get(request.digests[index])
        if found is not None and found.readable <= at < found.expires:
            return True
    return False


def _window(request: SimRequest, index: int, rules: ClaudeRules) -> Iterator[int]:
    """Visit the content blocks that a lookup from ``index`` may end on, longest prefix first.

    Inside a run that counts as one position every content block may be the end of an entry.
    """
    kinds = request.kinds
    positions = 0
    run: str | None = None
    while index >= 0:
        kind = kinds[index]
        if not (rules.collapse_runs and kind in _RUNS and kind == run):
            positions += 1
            if positions > rules.positions:
                return
        yield index
        run = kind
        index -= 1


def _placed(request: SimRequest, rules: ClaudeRules) -> tuple[list[Mark], str | None]:
    """Resolve the automatic marker and check what the provider would refuse."""
    if request.invalid is not None:
        return [], request.invalid
    marks = [mark for mark in request.marks if not mark.automatic]
    automatic = next((mark for mark in request.marks if mark.automatic), None)
    if automatic is not None:
        if not rules.automatic:
            return [], "this platform places no markers by itself for this model"
        refused = _place(automatic, marks, request, rules)
        if refused is not None:
            return [], refused
    count = sum(not mark.own for mark in marks)
    if count > rules.most_markers:
        return [], f"{count} markers where {rules.most_markers} are allowed"
    marks.sort(key=lambda mark: mark.index)
    return marks, _lifetimes(marks, rules)


def _place(
    automatic: Mark, marks: list[Mark], request: SimRequest, rules: ClaudeRules
) -> str | None:
    """Put the automatic marker on the last content block that can bear one."""
    index = automatic.index
    while index >= 0 and request.kinds[index] in _NOT_MARKABLE:
        index -= 1
    same = next((mark for mark in marks if mark.index == index and not mark.own), None)
    if same is None:
        if index >= 0:
            marks.append(Mark(index, automatic.ttl, automatic=True))
        return None
    if (same.ttl or rules.default_ttl) == (automatic.ttl or rules.default_ttl):
        return None
    return "the last content block is marked with another lifetime"


def _lifetimes(marks: list[Mark], rules: ClaudeRules) -> str | None:
    """Check that lifetimes are known and never grow from front to back."""
    shortest = float("inf")
    for mark in marks:
        ttl = mark.ttl or rules.default_ttl
        seconds = rules.ttl_seconds.get(ttl)
        if seconds is None:
            return f"unknown lifetime {ttl!r}"
        if mark.own:
            continue
        if seconds > shortest:
            return "a longer lifetime stands behind a shorter one"
        shortest = seconds
    return None


KIND: Final = Kind("claude", ClaudeMachine, claude_rules)
