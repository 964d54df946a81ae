"""A second implementation of the marked-prefix cache: lists and linear scans, nothing shared.

Written from the rules alone, to disagree with the real one wherever either is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SECONDS = {"5m": 300, "1h": 3600}
RUNS = ("tool_use", "tool_result")
UNMARKABLE = ("thinking", "redacted_thinking")


@dataclass
class Block:
    content: str
    kind: str
    tokens: int


@dataclass
class Wish:
    """A marker: place, lifetime or None for the default, whether the provider is to place it."""

    place: int
    ttl: str | None = None
    automatic: bool = False


@dataclass
class Law:
    minimum: int = 1024
    positions: int = 20
    most: int = 4
    collapse: bool = True
    default: str = "5m"
    refresh_marked: bool = True
    ttl_in_key: bool = False
    upgrade: bool = False
    variant: bool = True
    delay: float = 0.0
    below_hit: bool = True
    at_end: bool = False
    reader_renews: bool = False


@dataclass
class Kept:
    who: str
    scope: str
    variant: str
    prefix: list[str]
    ttl: str
    until: float
    since: float


@dataclass
class Bill:
    read: int
    five: int
    hour: int
    fresh: int
    refused: bool = False
    who: str | None = None


@dataclass
class NaiveCache:
    law: Law
    kept: list[Kept] = field(default_factory=list)

    def ask(
        self,
        who: str,
        at: float,
        first: float,
        end: float,
        blocks: list[Block],
        wishes: list[Wish],
        scope: str = "",
        variant: str = "",
    ) -> Bill:
        """Serve one request."""
        law = self.law
        everything = sum(block.tokens for block in blocks)
        marks = self._settle(blocks, wishes)
        if marks is None:
            return Bill(0, 0, 0, everything, refused=True)
        variant = variant if law.variant else ""
        names = [block.content for block in blocks]

        def size(count: int) -> int:
            return sum(block.tokens for block in blocks[:count])

        def entry(count: int, ttl: str) -> Kept | None:
            for kept in self.kept:
                if kept.scope != scope or kept.variant != variant:
                    continue
                if law.ttl_in_key and kept.ttl != ttl:
                    continue
                if kept.prefix == names[:count]:
                    return kept
            return None

        def usable(kept: Kept | None) -> bool:
            return kept is not None and kept.since <= at and kept.until > at

        hit: Kept | None = None
        length = 0
        for place, ttl in reversed(marks):
            for count in self._reach(blocks, place):
                kept = entry(count, ttl)
                if kept is not None and usable(kept) and count > length:
                    hit, length = kept, count
        if hit is not None:
            wanted = [ttl for place, ttl in marks if place + 1 >= length]
            if law.upgrade and any(p + 1 == length and t == "1h" for p, t in marks):
                hit.ttl = "1h"
            life = SECONDS[wanted[0] if law.reader_renews else hit.ttl]
            hit.until = max(hit.until, at + life)
            if law.refresh_marked:
                for place, ttl in marks:
                    short = entry(place + 1, ttl)
                    if place + 1 < length and short is not None and usable(short):
                        life = SECONDS[ttl if law.reader_renews else short.ttl]
                        short.until = max(short.until, at + life)
        since = (end if law.at_end else first) + law.delay
        a = b = c = size(length)
        for place, ttl in marks:
            count = place + 1
            if size(count) < law.minimum or count == length:
                continue
            if count < length and not law.below_hit:
                continue
            old = entry(count, ttl)
            if old is not None and old.until > at:
                old.since = min(old.since, since)
                if at + SECONDS[ttl] > old.until:
                    old.ttl, old.until = ttl, at + SECONDS[ttl]
            else:
                if old is not None:
                    self.kept.remove(old)
                self.kept.append(
                    Kept(who, scope, variant, names[:count], ttl, at + SECONDS[ttl], since)
                )
            if count > length:
                c = max(c, size(count))
                b = max(b, size(count)) if ttl == "1h" else b
        c = max(b, c)
        return Bill(a, c - b, b - a, everything - c, who=None if hit is None else hit.who)

    def _settle(self, blocks: list[Block], wishes: list[Wish]) -> list[tuple[int, str]] | None:
        """Place every marker, or return None where the provider would answer 400."""
        law = self.law
        fixed = {w.place: w.ttl or law.default for w in wishes if not w.automatic}
        for wish in wishes:
            if not wish.automatic:
                continue
            ttl = wish.ttl or law.default
            fit = [i for i, block in enumerate(blocks) if block.kind not in UNMARKABLE]
            if fit and fit[-1] in fixed and fixed[fit[-1]] != ttl:
                return None
            if fit:
                fixed[fit[-1]] = ttl
        ordered = sorted(fixed.items())
        lives = [SECONDS[ttl] for _, ttl in ordered]
        if len(ordered) > law.most or lives != sorted(lives, reverse=True):
            return None
        return ordered

    def _reach(self, blocks: list[Block], place: int) -> list[int]:
        """Lengths of the prefixes that a marker can find: at most so many positions back."""
        positions: list[list[int]] = []
        for index in range(place + 1):
            together = (
                self.law.collapse
                and index > 0
                and blocks[index].kind in RUNS
                and blocks[index].kind == blocks[index - 1].kind
            )
            if together:
                positions[-1].append(index + 1)
            else:
                positions.append([index + 1])
        lengths: list[int] = []
        for group in positions[-self.law.positions :]:
            lengths += group
        return lengths


def as_dict(bill: Bill) -> dict[str, Any]:
    """Write a bill for comparison."""
    return {"read": bill.read, "5m": bill.five, "1h": bill.hour, "uncached": bill.fresh}
