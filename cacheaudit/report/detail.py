"""What a page shows of recorded calls beyond their usage: prompts as strips, lifetimes, tools.

Pure functions of recorded calls, for the jobs that fill a result. No text of a prompt leaves them
but names of tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.change import Change, common_prefix
from cacheaudit.model.prompt import ContentBlock, Prompt
from cacheaudit.model.tokens import estimate
from cacheaudit.model.usage import Usage
from cacheaudit.report.result import Strip, ToolUse

# Lifetimes, the shortest first.
_SECONDS = (("5m", 300), ("30m", 1_800), ("1h", 3_600), ("12h", 43_200))
_USES = frozenset({"tool_use", "function_call", "tool_call", "server_tool_use", "mcp_tool_use"})


def writes(usage: Usage | None) -> dict[str, int] | None:
    """Split what a call wrote by lifetime; ``None`` where nothing is known of its writes."""
    if usage is None or usage.cache_write is None:
        return None
    found: dict[str, int] = {}
    if usage.write_5m:
        found["5m"] = usage.write_5m
    if usage.write_1h:
        found["1h"] = usage.write_1h
    if usage.write_30m:
        found["30m"] = usage.write_30m
    if usage.write_12h:
        found["12h"] = usage.write_12h
    if usage.write_other:
        name = usage.write_other_ttl or "other"
        found[name] = found.get(name, 0) + usage.write_other
    return found


def events(call: Call) -> list[str]:
    """Name what lies between a call and the one before it in its lane."""
    found = [boundary.kind for boundary in call.boundaries]
    if call.attempt and "retry" not in found:
        found.append("retry")
    return found


def first_token_seconds(call: Call) -> float | None:
    """Measure from the start of the request to its first token; ``None`` where not timed."""
    if call.started_at is None or call.first_token_at is None:
        return None
    waited = call.first_token_at - call.started_at
    return round(waited, 3) if waited >= 0 else None


class Lives:
    """How long what calls read or wrote lives: by the lane's last write, its shortest lifetime."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str], int] = {}

    def of(self, call: Call, split: dict[str, int] | None = None) -> int | None:
        """Seconds from the start of the request; ``None`` where nothing was cached or known.

        ``split`` is what :func:`writes` says of the call, where that was asked already.
        """
        if split is None:
            split = writes(call.usage) or {}
        key = (call.session, call.lane)
        for ttl, seconds in _SECONDS:
            if ttl in split:
                self._lanes[key] = seconds
                return seconds
        if not split and (call.usage is None or not call.usage.cache_read):
            return None
        return self._lanes.get(key)


class Strips:
    """Prompts as strips; work per call grows with what is new in its lane."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str], tuple[Prompt, list[int]]] = {}

    def of(self, call: Call, change: Change | None = None) -> Strip | None:
        """Lay out one call; calls of a lane must come in their order.

        Args:
            call: The call.
            change: Its first change against the call before it in its lane.
        """
        prompt = call.prompt
        if prompt is None or not prompt.blocks:
            return None
        key = (call.session, call.lane)
        sums = _sums(prompt, self._lanes.get(key))
        self._lanes[key] = (prompt, sums)
        whole = call.usage.prompt_size if call.usage is not None else None
        is_scaled = any(
            block.tokens is None or block.tokens_origin == "estimated"
            for block in (*prompt.blocks[:2], prompt.blocks[-1])
        )
        size = sums[-1] or 1
        total = whole if is_scaled and whole else size

        def tokens(upto: int) -> int:
            return sums[upto - 1] * total // size if upto else 0

        at = None if change is None else min(change.blocks_before, len(sums))
        return Strip(
            parts=_parts(prompt, tokens),
            marks=[tokens(n) for n, block in enumerate(prompt.blocks, 1) if block.marker],
            change=None if at is None else tokens(at),
            scaled=is_scaled,
        )


def _sums(prompt: Prompt, previous: tuple[Prompt, list[int]] | None) -> list[int]:
    shared = 0 if previous is None else common_prefix(previous[0], prompt)
    sums = [] if previous is None else previous[1][:shared]
    running = sums[-1] if sums else 0
    for block in prompt.blocks[shared:]:
        running += estimate(block) if block.tokens is None else block.tokens
        sums.append(running)
    return sums


def _parts(prompt: Prompt, tokens: Any) -> list[tuple[str, int]]:
    parts: list[tuple[str, int]] = []
    ends = [
        (block.level, index)
        for index, block in enumerate(prompt.blocks, 1)
        if index == len(prompt.blocks) or prompt.blocks[index].level != block.level
    ]
    before = 0
    for level, end in ends:
        upto = tokens(end)
        parts.append((level, upto - before))
        before = upto
    return parts


class _Seen:
    __slots__ = ("calls", "churn", "digests", "tokens", "used")

    def __init__(self) -> None:
        self.calls = self.used = self.churn = 0
        self.tokens: int | None = None
        self.digests: set[bytes] = set()


class ToolDirectory:
    """Tools that requests declared, over any number of sessions."""

    def __init__(self) -> None:
        self._tools: dict[str, _Seen] = {}
        self._lanes: dict[tuple[str, str], tuple[Prompt, tuple[str, ...]]] = {}
        # A new prefix, or a lane that begins with a copy of another one, repeats uses.
        self._uses: set[tuple[str, bytes]] = set()
        self._is_told = True

    def add(self, calls: Iterable[Call]) -> None:
        """Take the calls of a session, each lane in its order."""
        for call in calls:
            if call.prompt is not None:
                self._add(call, call.prompt)
        self._lanes.clear()
        self._uses.clear()

    def _add(self, call: Call, prompt: Prompt) -> None:
        key = (call.session, call.lane)
        before = self._lanes.get(key)
        names = self._declared(prompt, before)
        if before is not None and before[1] != names:
            self._count_churn(before[1], names)
        shared = 0 if before is None else common_prefix(before[0], prompt)
        for block in prompt.blocks[shared:]:
            if block.kind in _USES and not block.canonical:
                self._is_told = False
            name = _used(block)
            identity = (block.path, block.digest)
            if name is not None and identity not in self._uses:
                self._uses.add(identity)
                self._tools.setdefault(name, _Seen()).used += 1
        self._lanes[key] = (prompt, names)

    def _declared(
        self, prompt: Prompt, before: tuple[Prompt, tuple[str, ...]] | None
    ) -> tuple[str, ...]:
        tools = [block for block in prompt.blocks if block.level == "tools" and block.name]
        names = tuple(block.name for block in tools if block.name)
        old = None if before is None else before[0].blocks
        for index, block in enumerate(tools):
            seen = self._tools.setdefault(block.name or "", _Seen())
            seen.calls += 1
            if old is not None and index < len(old) and old[index] is block:
                continue
            seen.digests.add(block.digest)
            size = block.tokens if block.tokens is not None else estimate(block)
            seen.tokens = max(seen.tokens or 0, size)
        return names

    def _count_churn(self, old: Sequence[str], new: Sequence[str]) -> None:
        gone = set(old) ^ set(new)
        kept = [name for name in old if name in new]
        if not gone and kept != list(new):
            # A name may stand twice, so the lists can differ in length with the same names.
            gone = {a for pair in zip_longest(old, new) if pair[0] != pair[1] for a in pair if a}
        for name in gone:
            self._tools.setdefault(name, _Seen()).churn += 1

    def rows(self) -> list[ToolUse]:
        """List the tools, the largest definition first."""
        rows = [
            ToolUse(
                name=name,
                tokens=seen.tokens,
                calls=seen.calls,
                used=seen.used if self._is_told else None,
                versions=max(1, len(seen.digests)),
                churn=seen.churn,
            )
            for name, seen in self._tools.items()
            if seen.calls
        ]
        return sorted(rows, key=lambda row: (-(row.tokens or 0) * row.calls, row.name))


def _used(block: ContentBlock) -> str | None:
    """Name the tool that a block of the model's calls."""
    if block.kind not in _USES or not block.canonical:
        return None
    fields = msgspec.json.decode(block.canonical)
    if not isinstance(fields, dict):
        return None
    inner = fields.get("function")
    name = fields.get("name") or (inner.get("name") if isinstance(inner, dict) else None)
    return name if isinstance(name, str) else None
