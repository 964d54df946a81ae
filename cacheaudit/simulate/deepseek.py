"""DeepSeek: prefix units on disk, each of them found as a whole or not at all.

Units are stored where a request's input ends, where its output ends, and where two requests were
found to part; the last of these helps from the third request on. Older models found multiples of
64 tokens instead (``unit_tokens``).
"""

from __future__ import annotations

from typing import Final

import msgspec

from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.longest_prefix import LongestPrefixMachine, LongestRules
from cacheaudit.simulate.machine import Kind
from cacheaudit.simulate.request import Outcome, SimRequest, known_prefix
from cacheaudit.simulate.switches import Switches


class DeepSeekRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules in force.

    Attributes:
        minimum: Tokens that a prefix needs to be read.
        unit: Tokens of a unit that counts by itself; 0: only whole prefixes.
        lifetime: Seconds from the last use.
    """

    minimum: int = 64
    unit: int = 0
    lifetime: float = 86_400.0


def deepseek_rules(facts: Rules, switches: Switches) -> DeepSeekRules:
    """Put dated facts and switches together."""
    lifetimes = facts.ttl_seconds()
    return DeepSeekRules(
        minimum=int(switches.number("minimum_tokens", facts.integer("minimum_tokens", 64))),
        unit=int(switches.number("deepseek_unit", facts.integer("unit_tokens"))),
        lifetime=lifetimes.get(facts.text("default_ttl") or "", 86_400.0),
    )


class _Unit:
    """A prefix on disk; ``replied_at`` is when the output behind it had been stored as well."""

    __slots__ = ("expires", "readable", "replied_at", "writer")

    def __init__(
        self, expires: float, readable: float, replied_at: float | None, writer: str
    ) -> None:
        self.expires = expires
        self.readable = readable
        self.replied_at = replied_at
        self.writer = writer


class _Disk:
    """What is stored for one scope."""

    __slots__ = ("seen", "units")

    def __init__(self) -> None:
        self.seen: dict[bytes, None] = {}
        self.units: dict[bytes, _Unit] = {}


class DeepSeekMachine:
    """State of one cache. Requests must come in order of their start."""

    name = "deepseek"

    def __init__(self) -> None:
        self._disks: dict[str, _Disk] = {}
        self._stepped = LongestPrefixMachine()

    def step(self, request: SimRequest, rules: DeepSeekRules) -> Outcome:
        """Take one request and say what was read."""
        if rules.unit:
            return self._stepped.step(
                request,
                LongestRules(
                    minimum=rules.minimum,
                    interval=rules.unit,
                    ttl_seconds={"disk": rules.lifetime},
                    default_ttl="disk",
                ),
            )
        disk = self._disks.setdefault(request.scope, _Disk())
        shared = known_prefix(request.digests, disk.seen)
        hit, unit = _deepest(request, disk, shared)
        notes = {"best_effort"}
        read = request.sizes[hit] if hit >= 0 else 0
        if read < rules.minimum:
            notes |= {"below_minimum"} if read else set()
            read, hit = 0, -1
        _store(request, rules, disk, shared, hit)
        return Outcome(
            read=read,
            writes={},
            uncached=request.total - read,
            hit=hit,
            hit_from=unit.writer if unit is not None and hit >= 0 else None,
            notes=tuple(sorted(notes)),
        )


def _deepest(request: SimRequest, disk: _Disk, shared: int) -> tuple[int, _Unit | None]:
    """Find the longest unit on the way, the reply behind it included."""
    for index in range(shared - 1, -1, -1):
        unit = disk.units.get(request.digests[index])
        if unit is None or not unit.readable <= request.at < unit.expires:
            continue
        if unit.replied_at is not None and unit.replied_at <= request.at:
            return _reply_end(request, index), unit
        return index, unit
    return -1, None


def _reply_end(request: SimRequest, index: int) -> int:
    """Return the end of the assistant message right behind a stored input."""
    roles, messages = request.roles, request.messages
    first = index + 1
    if len(roles) <= first or roles[first] != "assistant":
        return index
    last = first
    while last + 1 < len(roles) and messages[last + 1] == messages[first]:
        last += 1
    return last


def _store(request: SimRequest, rules: DeepSeekRules, disk: _Disk, shared: int, hit: int) -> None:
    digests, until = request.digests, request.at + rules.lifetime
    for digest in digests[shared:]:
        disk.seen[digest] = None
    if hit >= 0 and (old := disk.units.get(digests[hit])) is not None:
        old.expires = max(old.expires, until)
    if 0 < shared < len(digests) and shared - 1 > hit:
        _put(disk, digests[shared - 1], _Unit(until, request.readable_at, None, request.id))
    if digests:
        end = _Unit(until, request.readable_at, request.ended_at, request.id)
        _put(disk, digests[-1], end)


def _put(disk: _Disk, digest: bytes, unit: _Unit) -> None:
    old = disk.units.get(digest)
    if old is None or old.expires <= unit.readable:
        disk.units[digest] = unit
        return
    old.expires = max(old.expires, unit.expires)
    old.readable = min(old.readable, unit.readable)
    if old.replied_at is None:
        old.replied_at = unit.replied_at


KIND: Final = Kind("deepseek", DeepSeekMachine, deepseek_rules)
