"""Which prefix of a prompt was used lately, where any prefix may be found again.

Prompts form a tree. Nodes that every later prompt passes together form one run: a lane that grows
at its end is one run however long it gets. A use is noted once a run, so a request costs what is
new in it and the forks on its way, not its length.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from cacheaudit.simulate.request import known_prefix


class Found(msgspec.Struct, frozen=True):
    """The longest prefix that can be read.

    Attributes:
        depth: Content blocks that it covers.
        writer: Id of the request that brought its last content block.
        notes: ``expired`` or ``not_yet_readable``: a longer one was known.
    """

    depth: int
    writer: str | None = None
    notes: tuple[str, ...] = ()


class _Run:
    """Nodes from ``start`` (exclusive) to ``tip``; depths count from the root, from 1.

    ``reach`` (negated, ascending) and ``until`` (ascending) say up to which depth the run was used
    and until when that keeps it: the largest ``until`` of all uses that reach a depth counts.
    ``begin``, ``readable`` and ``writer`` say from which depth on which request brought the nodes.
    """

    __slots__ = ("begin", "parent", "reach", "readable", "start", "tip", "until", "writer")

    def __init__(self, parent: _Run | None, start: int) -> None:
        self.parent = parent
        self.start = start
        self.tip = start
        self.reach: list[int] = []
        self.until: list[float] = []
        self.begin: list[int] = []
        self.readable: list[float] = []
        self.writer: list[str] = []

    def use(self, depth: int, until: float) -> None:
        """Note a use of all nodes down to ``depth``."""
        place = bisect_right(self.reach, -depth) - 1
        if place >= 0 and self.until[place] >= until:
            return
        first = bisect_left(self.reach, -depth)
        last = bisect_right(self.until, until, first)
        self.reach[first:last] = [-depth]
        self.until[first:last] = [until]

    def alive(self, depth: int, at: float) -> int:
        """Return the largest depth, at most ``depth``, that is still kept; 0 for none."""
        place = bisect_right(self.until, at)
        return min(depth, -self.reach[place]) if place < len(self.reach) else 0

    def bring(self, depth: int, readable: float, writer: str) -> None:
        """Say that the nodes from ``depth`` on come from this request."""
        place = bisect_left(self.begin, depth)
        self.begin[place:] = [depth]
        self.readable[place:] = [readable]
        self.writer[place:] = [writer]


class PrefixTree:
    """Prompts of one scope. Requests must come in order of their start."""

    def __init__(self) -> None:
        self._runs: dict[bytes, _Run] = {}

    def find(self, digests: Sequence[bytes], at: float) -> Found:
        """Find the longest prefix that is kept and can be read."""
        depth = known_prefix(digests, self._runs)
        if not depth:
            return Found(0)
        notes: list[str] = []
        run: _Run | None = self._runs[digests[depth - 1]]
        while run is not None:
            kept = run.alive(depth, at)
            if kept < depth and "expired" not in notes:
                notes.append("expired")
            while kept > run.start:
                place = bisect_right(run.begin, kept) - 1
                if run.readable[place] <= at:
                    return Found(kept, run.writer[place], tuple(notes))
                if "not_yet_readable" not in notes:
                    notes.append("not_yet_readable")
                kept = run.begin[place] - 1
            depth, run = run.start, run.parent
        return Found(0, None, tuple(notes))

    def add(
        self, digests: Sequence[bytes], at: float, until: float, readable: float, writer: str
    ) -> None:
        """Keep every prefix of a prompt until then; what is kept already is used once more."""
        depth = known_prefix(digests, self._runs)
        run = self._runs[digests[depth - 1]] if depth else None
        self._bring_back(run, depth, at, readable, writer)
        if depth < len(digests):
            if run is None or run.tip != depth:
                run = _Run(run, depth)
            run.bring(depth + 1, readable, writer)
            for digest in digests[depth:]:
                self._runs[digest] = run
            run.tip = depth = len(digests)
        while run is not None:
            run.use(depth, until)
            depth, run = run.start, run.parent

    def _bring_back(
        self, run: _Run | None, depth: int, at: float, readable: float, writer: str
    ) -> None:
        """Nodes that had been dropped are brought anew."""
        while run is not None:
            kept = run.alive(depth, at)
            if kept < depth:
                run.bring(max(kept, run.start) + 1, readable, writer)
            if kept > run.start:
                return
            depth, run = run.start, run.parent
