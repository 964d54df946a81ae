"""OpenAI from GPT-5.6 on: exact prefixes at breakpoints, and no fallback to anything between them.

A request without explicit breakpoints has one at the end of its latest eligible message. Written
tokens are billed as written instead of as fresh. Lifetimes are minimum lifetimes from the last use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.claude import Entry
from cacheaudit.simulate.machine import Kind
from cacheaudit.simulate.request import Outcome, SimRequest
from cacheaudit.simulate.switches import Switches

_DEVELOPER: Final = frozenset({"developer", "system"})
_FIRST_EXPLICIT: Final = 2
_LATEST_EXPLICIT: Final = 50
_EARLIER_ENDINGS: Final = 20
_SDK_BREAKPOINTS: Final = 80
_TTL_SECONDS: Final = {"30m": 1_800.0, "12h": 43_200.0}


class OpenAIRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules in force.

    Attributes:
        minimum: Tokens that a prefix needs.
        most_writes: Breakpoints that one request writes.
        lookup: ``sdk`` or ``guide``: which breakpoints are compared.
        default_ttl: Lifetime where none is asked for.
        ttl_seconds: Lifetimes by name.
    """

    minimum: int = 1024
    most_writes: int = 4
    lookup: str = "sdk"
    default_ttl: str = "30m"
    ttl_seconds: Mapping[str, float] = msgspec.field(default_factory=lambda: dict(_TTL_SECONDS))


def openai_v2_rules(facts: Rules, switches: Switches) -> OpenAIRules:
    """Put dated facts and switches together."""
    return OpenAIRules(
        minimum=int(switches.number("minimum_tokens", facts.integer("minimum_tokens", 1024))),
        most_writes=facts.integer("most_writes", 4),
        lookup=switches.choice("openai_lookup", facts.text("lookup") or "sdk"),
        default_ttl=facts.text("default_ttl") or "30m",
        ttl_seconds=facts.ttl_seconds(),
    )


class OpenAIMachine:
    """State of one cache. Requests must come in order of their start."""

    name = "openai_v2"

    def __init__(self) -> None:
        self._shelves: dict[str, dict[bytes, Entry]] = {}

    def step(self, request: SimRequest, rules: OpenAIRules) -> Outcome:
        """Take one request and say what was read and written."""
        wanted = {mark.index: mark.ttl for mark in request.marks if not mark.automatic}
        unknown = {ttl for ttl in (*wanted.values(), request.ttl) if ttl} - rules.ttl_seconds.keys()
        if request.invalid is not None or unknown:
            why = request.invalid or f"unknown lifetime {min(unknown)!r}"
            return Outcome(read=0, writes={}, uncached=request.total, refused=why)
        shelf = self._shelves.setdefault(request.scope, {})
        notes: set[str] = set()
        hit, entry = _look_up(request, rules, shelf, sorted(wanted), notes)
        if entry is not None:
            entry.expires = max(entry.expires, request.at + rules.ttl_seconds[entry.ttl])
        points = _points(request, rules, wanted)
        if not points:
            notes.add("no_marker")
        return _write(request, rules, shelf, points, hit, entry, notes)


def _look_up(
    request: SimRequest,
    rules: OpenAIRules,
    shelf: dict[bytes, Entry],
    explicit: list[int],
    notes: set[str],
) -> tuple[int, Entry | None]:
    """Find the longest readable prefix among the breakpoints that are compared."""
    for index in _compared(request, rules, explicit):
        found = shelf.get(request.digests[index])
        if found is None:
            continue
        if found.readable > request.at:
            notes.add("not_yet_readable")
        elif found.expires <= request.at:
            notes |= {"expired", "may_live_longer"}
        else:
            return index, found
    return -1, None


def _compared(request: SimRequest, rules: OpenAIRules, explicit: list[int]) -> list[int]:
    """List the breakpoints that are compared, longest prefix first."""
    if rules.lookup == "sdk":
        # The latest 80 of the union lie among the latest 80 of each kind.
        points = set(explicit[-_SDK_BREAKPOINTS:])
        if not request.only_marked:
            points |= set(islice(_endings(request), _SDK_BREAKPOINTS))
        return sorted(points, reverse=True)[:_SDK_BREAKPOINTS]
    points = set(explicit[:_FIRST_EXPLICIT]) | set(explicit[-_LATEST_EXPLICIT:])
    if not request.only_marked:
        points |= set(islice(_endings(request), 1 + _EARLIER_ENDINGS))
        first = _developer_end(request)
        points |= set() if first is None else {first}
    return sorted(points, reverse=True)


def _points(
    request: SimRequest, rules: OpenAIRules, wanted: Mapping[int, str | None]
) -> list[tuple[int, str]]:
    """List the breakpoints that are written, shortest prefix first, with their lifetimes."""
    room = rules.most_writes
    chosen: dict[int, str | None] = {}
    if not request.only_marked:
        latest = next(_endings(request), None)
        if latest is not None:
            chosen[latest] = request.ttl
            room -= 1
    for index in sorted(wanted, reverse=True)[: max(0, room)]:
        chosen[index] = wanted[index]
    default = request.ttl or rules.default_ttl
    return [(index, chosen[index] or default) for index in sorted(chosen)]


def _write(
    request: SimRequest,
    rules: OpenAIRules,
    shelf: dict[bytes, Entry],
    points: list[tuple[int, str]],
    hit: int,
    entry: Entry | None,
    notes: set[str],
) -> Outcome:
    sizes = request.sizes
    read = last = sizes[hit] if hit >= 0 else 0
    writes: dict[str, int] = {}
    for index, ttl in points:
        if index <= hit:
            continue
        if sizes[index] < rules.minimum:
            notes.add("below_minimum")
            continue
        expires = request.at + rules.ttl_seconds[ttl]
        old = shelf.get(request.digests[index])
        if old is not None and old.expires > request.at:
            old.readable = min(old.readable, request.readable_at)
            if expires > old.expires:
                old.ttl, old.expires = ttl, expires
        else:
            shelf[request.digests[index]] = Entry(ttl, expires, request.readable_at, request.id)
        if sizes[index] > last:
            writes[ttl] = writes.get(ttl, 0) + sizes[index] - last
            last = sizes[index]
    return Outcome(
        read=read,
        writes=writes,
        uncached=request.total - last,
        hit=hit,
        hit_from=None if entry is None else entry.writer,
        notes=tuple(sorted(notes)),
    )


def _endings(request: SimRequest) -> Iterator[int]:
    """Yield where eligible messages end, latest first.

    Eligible are user messages, the last of a group of tool results, and the last developer message
    of the group that opens the conversation.
    """
    roles, kinds, messages = request.roles, request.kinds, request.messages
    last = len(request.digests) - 1
    opening = _developer_end(request)
    for index in range(last, -1, -1):
        ends = index == last or messages[index] != messages[index + 1]
        if not ends:
            continue
        if kinds[index] == "tool_result":
            if index == last or kinds[index + 1] != "tool_result":
                yield index
        elif roles[index] == "user" or index == opening:
            yield index


def _developer_end(request: SimRequest) -> int | None:
    """Return the end of the developer messages that open the conversation."""
    end = None
    for index in range(len(request.digests)):
        role, kind = request.roles[index], request.kinds[index]
        if role in _DEVELOPER:
            end = index
        elif kind != "tool" or role is not None:
            break
    return end


KIND: Final = Kind("openai_v2", OpenAIMachine, openai_v2_rules)
