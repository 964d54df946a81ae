"""Fronts that differ between conversations: tools and system that could have been shared.

The first call of a session loses nothing of its own lane. But where the front of its prompt is that
of an earlier session but for a clock, a git status or the order of its tools, it wrote again what
it could have read. Bodies show that; of each kind of front only the last one is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import msgspec

from cacheaudit.diagnose.events import Opening
from cacheaudit.diagnose.reach import sizes
from cacheaudit.diagnose.rule import Rule, all_rules
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.diagnose.times import TTL_SECONDS
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Call, Session
from cacheaudit.model.finding import Finding
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.usage import Usage

# Differences by accident. That another session has other tools or another system prompt is none.
_NAMES: Final = frozenset(
    {
        "clock-in-system",
        "counter-in-prefix",
        "git-status-in-system",
        "random-id-in-prefix",
        "representation-drift",
        "tool-description-volatile",
        "tool-schema-key-order",
        "tools-reordered",
        "workspace-listing-in-system",
    }
)
# Automatic caches have no documented lifetime; an hour is the longest that they are said to keep.
_LONGEST: Final = 3_600.0
_MOST_FRONTS: Final = 64
_LISTED: Final = 50
_WRITES: Final = ("write_5m", "write_1h", "write_30m", "write_12h", "write_other")
_Key = tuple[object, ...]


class _Seen:
    """Conversations whose fronts part at the same place in the same way."""

    def __init__(self, first: Finding) -> None:
        self.first = first
        self.calls: dict[str, None] = {}
        self.sessions: set[str] = set()
        self.tokens = 0


class Fronts:
    """Compares the front of every conversation with the last one of its kind."""

    def __init__(self) -> None:
        self._last: OrderedDict[_Key, Call] = OrderedDict()
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._rules: tuple[Rule, ...] | None = None

    def add(self, openings: tuple[Opening, ...]) -> None:
        """Take in the first calls of a session's lanes."""
        for opening in openings:
            front = _front(opening)
            if front is None or front.prompt is None:
                continue
            names = sorted(block.name or "" for block in front.prompt.at_level("tools"))
            key = (front.provider, front.surface, front.model, front.purpose, *names)
            before = self._last.pop(key, None)
            if before is not None:
                self._compare(before, front)
            self._last[key] = front
            if len(self._last) > _MOST_FRONTS:
                self._last.popitem(last=False)

    def findings(self) -> Iterator[Finding]:
        """Yield one note for each place at which fronts part."""
        for number, seen in enumerate(self._seen.values()):
            first = seen.first
            what = f"{len(seen.calls)} conversations in {len(seen.sessions)} sessions"
            yield msgspec.structs.replace(
                first,
                id=f"{first.rule}:across:front{number}",
                kind="note",
                session=None,
                calls=tuple(seen.calls)[:_LISTED],
                established=(
                    (
                        f"{what} began while the front of the one before was alive and differ from "
                        f"it in tools or system; {count(seen.tokens)} tokens of these fronts "
                        "were sent again."
                    ),
                    *first.established,
                ),
                tokens_lost=0,
                lost=None,
                places=(),
            )

    def _compare(self, one: Call, other: Call) -> None:
        before, after = sorted((one, other), key=lambda call: call.at or 0.0)
        if not _is_alive(before, after) or _is_same(before, after):
            return
        if self._rules is None:
            self._rules = tuple(rule for rule in all_rules() if rule.name in _NAMES)
        pair = tuple(
            msgspec.structs.replace(call, session="", lane="main") for call in (before, after)
        )
        found = diagnose(Session(id="", source="", calls=pair), None, self._rules)
        for finding in found.findings:
            if finding.kind != "loss" or finding.first_change is None:
                continue
            seen = self._seen.setdefault((finding.name, finding.first_change.path), _Seen(finding))
            seen.calls.update({before.id: None, after.id: None})
            seen.sessions.update((before.session, after.session))
            seen.tokens += finding.tokens_lost


def _front(opening: Opening) -> Call | None:
    """Cut a call to its tools and system; ``None`` without a body, a time or a front."""
    call = opening.call
    prompt, usage = call.prompt, call.usage
    if prompt is None or usage is None or call.at is None:
        return None
    if prompt.level_order[-1] != "messages":
        return None
    blocks = tuple(block for block in prompt.blocks if block.level != "messages")
    if not blocks:
        return None
    tokens = sum(sizes(call)[: len(blocks)])
    return msgspec.structs.replace(
        call,
        prompt=_cut(prompt, len(blocks)),
        usage=_usage(usage, tokens, opening.written > 0),
        boundaries=(),
        diagnostics=None,
        extra={},
    )


def _cut(prompt: Prompt, blocks: int) -> Prompt:
    return msgspec.structs.replace(
        prompt,
        blocks=prompt.blocks[:blocks],
        prefix_digests=prompt.prefix_digests[:blocks],
        parameters=tuple(p for p in prompt.parameters if p.level != "messages"),
        automatic_marker=None,
    )


def _usage(usage: Usage, tokens: int, has_written: bool) -> Usage:
    """Keep what concerns the front: what was not read of it was sent again."""
    read = min(usage.cache_read or 0, tokens)
    rest = tokens - read
    parts: dict[str, int | None] = {}
    if has_written:
        field = max(_WRITES, key=lambda name: getattr(usage, name) or 0)
        parts = {name: rest if name == field else 0 for name in _WRITES}
    return msgspec.structs.replace(
        usage,
        total_input=tokens,
        uncached_input=0 if has_written else rest,
        cache_read=read,
        context_input=None,
        parts=(),
        **parts,
    )


def _is_alive(before: Call, after: Call) -> bool:
    """Whether what the first one wrote can still have been there."""
    usage = before.usage
    label = next((n[6:] for n in _WRITES[:4] if usage is not None and getattr(usage, n)), None)
    gap = (after.at or 0.0) - (before.at or 0.0)
    return gap <= (TTL_SECONDS[label] if label is not None else _LONGEST)


def _is_same(before: Call, after: Call) -> bool:
    a, b = before.prompt, after.prompt
    return a is None or b is None or a.prefix_digests[-1] == b.prefix_digests[-1]
