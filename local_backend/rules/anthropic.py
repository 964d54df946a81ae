"""Rules with markers: an entry at each of them, found again from markers of later requests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from local_backend._typing import override
from local_backend.rules.base import TTLS, Block, Miss, Outcome, Plan, Prompt, ServiceRules
from local_backend.rules.chain import prefixes, sums
from local_backend.rules.markers import Mark, marks_of
from local_backend.rules.minimums import known_minimum

_RUNS = frozenset({"tool_use", "tool_result"})
# Expired entries are kept this long, so that a miss can be put down to their end.
_REMEMBERED_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Entry:
    ttl: str
    readable_from: float
    expires: float

    def live(self, now: float) -> bool:
        return self.readable_from <= now < self.expires


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicSettings:
    """What can be set.

    Attributes:
        minimum: Shortest prefix that is cached, in tokens, for models without a published one.
        scale: Tokens that one token stands for; minimums are divided by it.
        published: Whether Claude models have their published minimum.
        positions: Of a lookback, the marked block included.
        collapse_runs: Whether a run of tool calls, or of their results, is one position.
        grain: Tokens in the unit that the engine reuses. What it rounds off is no eviction.
        max_entries: Most entries kept; those that expire first go first.
    """

    minimum: int = 1024
    scale: int = 1
    published: bool = True
    positions: int = 20
    collapse_runs: bool = True
    grain: int = 1
    max_entries: int = 200_000


class AnthropicRules(ServiceRules):
    """Cache entries at markers, with lifetimes and a lookback.

    A prefix is stored at each marker that has the minimum before it. From its markers a request
    looks back at most 20 positions each; the longest entry found is read. Reading prolongs the
    entry read, and those at the request's own markers before it, by their own lifetime, counted
    from the start of the request. What is stored can be read once the first response begins.

    Args:
        settings: What can be set.
    """

    name = "anthropic"
    tools_first = True

    def __init__(self, settings: AnthropicSettings | None = None) -> None:
        self.settings = settings or AnthropicSettings()
        self._entries: dict[bytes, _Entry] = {}

    def minimum(self, model: str) -> int:
        """Shortest prefix that is cached for a model, in tokens."""
        known = known_minimum(model) if self.settings.published else None
        least = self.settings.minimum if known is None else known
        # To the nearest, as the sizes of what is sent are rounded.
        scale = self.settings.scale
        return least if scale == 1 else max(1, (2 * least + scale) // (2 * scale))

    @override
    def check(self, prompt: Prompt) -> None:
        marks_of(prompt)

    @override
    def plan(self, prompt: Prompt, now: float) -> Plan:
        marks = marks_of(prompt)
        keys, totals = prefixes(prompt), sums(prompt.blocks)
        minimum = self.minimum(prompt.model)
        stored = [mark for mark in marks if totals[mark.index] >= minimum]
        hit = self._longest(prompt.blocks, marks, keys, now)
        self._prolong([*(m.index for m in stored if m.index <= hit), hit], keys, now)
        miss = self._why(marks, stored, keys, hit, now)
        ends = tuple((totals[mark.index], mark.ttl, keys[mark.index]) for mark in stored)
        for _, ttl, key in ends:
            self._store(key, ttl, now, math.inf)
        self._sweep(now)
        read = totals[hit] if hit >= 0 else 0
        return Plan(prompt=prompt, start=now, read=read, miss=miss, ends=ends)

    @override
    def began(self, plan: Plan, held: int, readable_from: float) -> Outcome:
        for _, ttl, key in plan.ends:
            self._store(key, ttl, plan.start, readable_from)
        allowed = plan.read or 0
        read = min(allowed, held)
        evicted = max(0, self._reusable(plan) - held)
        longer = [end for end in plan.ends if end[0] > read]
        one_hour = max((tokens for tokens, ttl, _ in longer if ttl == "1h"), default=read)
        last = max((tokens for tokens, _, _ in longer), default=read)
        writes = {"5m": last - one_hour, "1h": one_hour - read}
        return Outcome(
            read=read,
            writes=writes,
            uncached=len(plan.prompt.tokens) - last,
            evicted=evicted,
            miss=Miss.EVICTED if evicted else plan.miss,
        )

    @override
    def ended(self, plan: Plan, output: tuple[int, ...], now: float) -> None:
        del plan, output, now

    @override
    def entries(self) -> int:
        return len(self._entries)

    def _longest(
        self, blocks: Sequence[Block], marks: Sequence[Mark], keys: Sequence[bytes], now: float
    ) -> int:
        """Index of the block at which the longest entry ends; -1 for none."""
        best = -1
        for mark in marks:
            for index in self._window(blocks, mark.index):
                if index <= best:
                    break
                entry = self._entries.get(keys[index])
                if entry is not None and entry.live(now):
                    best = index
                    break
        return best

    def _window(self, blocks: Sequence[Block], start: int) -> Iterator[int]:
        """Blocks that a lookback visits, from the marked one backwards."""
        positions, run = 0, ""
        for index in range(start, -1, -1):
            kind = blocks[index].kind
            in_run = self.settings.collapse_runs and kind in _RUNS and kind == run
            positions += not in_run
            if positions > self.settings.positions:
                return
            run = kind
            yield index

    def _prolong(self, indices: Sequence[int], keys: Sequence[bytes], now: float) -> None:
        for index in indices:
            entry = self._entries.get(keys[index]) if index >= 0 else None
            if entry is not None and entry.live(now):
                expires = max(entry.expires, now + TTLS[entry.ttl])
                self._entries[keys[index]] = replace(entry, expires=expires)

    def _store(self, key: bytes, ttl: str, start: float, readable_from: float) -> None:
        """Store a prefix; one that can be read already only keeps what it has."""
        expires = start + TTLS[ttl]
        old = self._entries.get(key)
        if old is not None and start < old.expires:
            if old.readable_from <= start:
                return
            ttl = max(ttl, old.ttl, key=TTLS.__getitem__)
            readable_from = min(readable_from, old.readable_from)
            expires = max(expires, old.expires)
        self._entries[key] = _Entry(ttl, readable_from, expires)

    def _why(
        self,
        marks: Sequence[Mark],
        stored: Sequence[Mark],
        keys: Sequence[bytes],
        hit: int,
        now: float,
    ) -> Miss | None:
        if not marks:
            return Miss.NOT_MARKED
        if not stored and hit < 0:
            return Miss.BELOW_MINIMUM
        for index in range(marks[-1].index, hit, -1):
            entry = self._entries.get(keys[index])
            if entry is None:
                continue
            if entry.expires <= now:
                return Miss.EXPIRED
            return Miss.NOT_READABLE_YET if entry.readable_from > now else Miss.LOOKBACK
        return None if hit >= 0 else Miss.NOTHING_STORED

    def _reusable(self, plan: Plan) -> int:
        """Tokens that an engine which holds all of it can reuse."""
        grain = self.settings.grain
        return min(plan.read or 0, len(plan.prompt.tokens) - 1) // grain * grain

    def _sweep(self, now: float) -> None:
        """Keep the number of entries in bounds; looks at all of them only where that helps."""
        if len(self._entries) <= self.settings.max_entries:
            return
        ordered = sorted(self._entries.items(), key=lambda item: item[1].expires)
        most = self.settings.max_entries * 3 // 4
        kept = [item for item in ordered if item[1].expires + _REMEMBERED_S > now]
        self._entries = dict(kept[-most:])
