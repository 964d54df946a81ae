"""Requests sketched from usage alone, so that edits have something to change.

A lane is taken to grow at its end. Where a call read less than the rules explain - no pause longer
than the lifetime, no other model, nothing still being written - its prompt is taken to differ from
the place on up to which it was read; where it read exactly what an older call had left, to go on
from that one. Requests that start together with equal reads and nearly equal writes are taken to
share the smaller write. So the sketch, simulated, bills what was billed as far as that can be, and
says nothing of why: it is a ground for counterfactuals, not a prediction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, Level, Marker, Prompt, chain, digest
from cacheaudit.simulate.edit import EditRefused
from cacheaudit.simulate.request import SKETCH
from cacheaudit.simulate.sizes import MARKED, Told, told_of, ttl_of

_ORDER: Final[tuple[Level, ...]] = ("tools", "system", "messages")
_MOST_BLOCKS: Final = 4_000_000
_MOST_CLIPS: Final = 3
# As for the rules that speak of it: a start within seconds, writes of nearly the same size.
_TOGETHER: Final = 5.0
_ALIKE: Final = 10
# Reads of automatic caches are cut to steps, some of them to intervals of 2,048 tokens.
_ROUNDED: Final = 2_048 + 128
_MOMENT: Final = 1e-3
_FOREVER: Final = float("inf")

# Who first sent it, and from where to where it reaches in the prompt. What is shared stands at the
# same place in every prompt that shares it.
_Piece = tuple[int, int, int]
_End = tuple[str, int, int]


class _Turn(msgspec.Struct):
    """One call as a line of pieces."""

    index: int
    told: Told
    scope: str
    lane: tuple[str, str]
    at: float
    readable: float
    ttl: str | None
    read: int
    cached: int
    is_stored: bool
    pieces: tuple[_Piece, ...] = ()
    base: int = -1

    @property
    def written(self) -> int:
        """Tokens up to the last marker that were not read."""
        return self.cached - self.read if self.is_stored else 0


def sketched(calls: Sequence[Call]) -> list[Call]:
    """Give calls the requests that their usage suggests.

    Args:
        calls: In order of start. Those with a body, and those whose record lacks sizes or a start,
            stay as they are.

    Raises:
        EditRefused: The sketches would be too large.
    """
    drawing = _Drawing()
    for index, call in enumerate(calls):
        told = told_of(call) if call.prompt is None else None
        if isinstance(told, Told) and _tells_all(told):
            drawing.add(index, call, told)
    return drawing.finish(calls)


class _Drawing:
    """Finds out what each call shares with which other, then draws the prompts."""

    def __init__(self) -> None:
        self._turns: list[_Turn] = []
        self._lanes: dict[tuple[str, str], list[_Turn]] = {}
        # End of a prefix → moment until which, and from which, it can be read.
        self._entries: dict[_End, tuple[float, float]] = {}
        self._cuts: dict[int, set[int]] = {}
        # Owner → places that later calls read up to, and which calls.
        self._clips: dict[int, dict[int, list[int]]] = {}
        self._delays: dict[int, float] = {}
        self._starts: dict[int, float] = {}

    def add(self, index: int, call: Call, told: Told) -> None:
        """Settle what a call shares with those before it."""
        read = told.usage.cache_read or 0
        stored = read + (told.usage.cache_write or 0)
        if told.facts.machine not in MARKED:
            stored = told.total
        lane = (call.session, call.lane)
        mine = self._lanes.setdefault(lane, [])
        turn = _Turn(
            index=index,
            told=told,
            scope=told.scope,
            lane=lane,
            at=told.span.high,
            readable=told.readable,
            ttl=ttl_of(told.usage) or (mine[-1].ttl if mine else None),
            read=read,
            # What no marker stored is sent again all the same: the next prompt begins with it.
            cached=stored or told.total,
            is_stored=stored > 0,
        )
        self._settle_start(turn, mine)
        base, shared = self._base(turn, mine)
        turn.base = -1 if base is None else base.index
        turn.pieces = () if base is None else _clipped(base.pieces, shared)
        if turn.cached > shared:
            turn.pieces += ((index, shared, turn.cached),)
        self._note(turn)
        mine.append(turn)
        self._turns.append(turn)

    def _settle_start(self, turn: _Turn, mine: list[_Turn]) -> None:
        """Where a start is an interval and all was read, take a moment at which it could be."""
        span = turn.told.span
        parent = mine[-1] if mine else None
        if parent is None or span.low == span.high or not turn.read or not parent.pieces:
            return
        owner, _, end = parent.pieces[-1]
        until = self._entries.get((turn.scope, owner, end), (0.0, 0.0))[0]
        if turn.read >= min(end, turn.cached) and span.low < until - _MOMENT < turn.at:
            turn.at = self._starts[turn.index] = until - _MOMENT

    def _base(self, turn: _Turn, mine: list[_Turn]) -> tuple[_Turn | None, int]:
        """Find the turn whose prompt a call goes on from, and how much of it stays."""
        parent = next((t for t in reversed(mine) if t.readable <= turn.at), None)
        parent = parent or (mine[-1] if mine else None)
        if parent is None:
            found, shared = self._opening(turn)
            return self._beside(turn, found, shared)
        if turn.read > parent.cached:  # more than the parent has: back to an older prompt
            longer = next((t for t in reversed(mine) if self._left(t, turn)), None)
            if longer is not None:
                return longer, turn.read
        reach = min(self._reach(parent, turn), turn.cached)
        rounding = 0 if turn.told.facts.machine in MARKED else _ROUNDED
        if turn.read >= reach - rounding:
            # Of a prompt that shrank only what was read is known to be the same.
            shared = turn.read if turn.cached < parent.cached else parent.cached
            base, most = self._beside(turn, parent, shared)
            return (base, most) if most > shared else (parent, self._cut(parent, shared, turn))
        if _is_repeated(parent, turn):
            self._delays[parent.index] = turn.at + _MOMENT
            return parent, parent.cached
        older = next((t for t in reversed(mine) if self._left(t, turn) and t.read < t.cached), None)
        if older is not None:
            return older, turn.read
        return parent, self._cut(parent, turn.read, turn)

    def _opening(self, turn: _Turn) -> tuple[_Turn | None, int]:
        """Find whose prefix the first call of a lane read."""
        if not turn.read:
            return None, 0
        others = [t for t in self._turns[-256:] if t.scope == turn.scope and t.readable <= turn.at]
        exact = next((t for t in reversed(others) if self._left(t, turn)), None)
        if exact is not None:
            return exact, turn.read
        longer = next((t for t in reversed(others) if self._is_alive(t, turn)), None)
        if longer is None or longer.cached < turn.read:
            return None, 0
        return longer, self._cut(longer, turn.read, turn)

    def _beside(self, turn: _Turn, base: _Turn | None, shared: int) -> tuple[_Turn | None, int]:
        """Share what a request that started at the same time wrote too."""
        for other in reversed(self._turns[-64:]):
            if turn.at - other.at > _TOGETHER:
                break
            if other.scope != turn.scope or other.readable <= turn.at or other.read != turn.read:
                continue
            more, less = max(other.written, turn.written), min(other.written, turn.written)
            if less <= 0 or (more - less) * _ALIKE > more:
                continue
            if base is None or _end(base, turn.read) == _end(other, turn.read):
                return other, self._cut(other, min(other.cached, turn.cached), turn)
        return base, shared

    def _reach(self, parent: _Turn, turn: _Turn) -> int:
        """Longest prefix of the parent's prompt that this call could have read."""
        for owner, _, end in reversed(parent.pieces):
            until, since = self._entries.get((turn.scope, owner, end), (0.0, 0.0))
            if since <= turn.at < until:
                return end
        return 0

    def _left(self, older: _Turn, turn: _Turn) -> bool:
        """Whether a call read exactly what an older one had left, and could."""
        return 0 < older.cached == turn.read and self._is_alive(older, turn)

    def _is_alive(self, older: _Turn, turn: _Turn) -> bool:
        if not older.pieces:
            return False
        owner, _, end = older.pieces[-1]
        until, since = self._entries.get((turn.scope, owner, end), (0.0, 0.0))
        return since <= turn.at < until

    def _cut(self, base: _Turn, place: int, turn: _Turn) -> int:
        """Let a prompt end a content block somewhere; earlier ones mark it, if it was read."""
        for owner, start, end in base.pieces:
            if not start < place <= end:
                continue
            if place < end:
                self._cuts.setdefault(owner, set()).add(place)
            if place == turn.read:
                self._clips.setdefault(owner, {}).setdefault(place, []).append(turn.index)
        return place

    def _note(self, turn: _Turn) -> None:
        """Write what a call leaves in the cache, and renew what it read."""
        facts = turn.told.facts
        seconds = facts.lifetimes.get(turn.ttl or facts.text("default_ttl") or "", _FOREVER)
        until = turn.at + seconds
        if not turn.is_stored:
            return
        for place in {turn.cached, turn.read}:
            found = _end(turn, place)
            if found is None:
                continue
            end = (turn.scope, *found)
            old = self._entries.get(end)
            if old is None or old[0] <= turn.at:
                self._entries[end] = (until, turn.readable)
            else:
                self._entries[end] = (max(until, old[0]), min(old[1], turn.readable))

    # ── drawing ──────────────────────────────────────────────────────────────────────────────────

    def finish(self, calls: Sequence[Call]) -> list[Call]:
        """Draw the prompts."""
        found = list(calls)
        prompts: dict[int, Prompt] = {}
        known: dict[tuple[int, int, int, int, str | None, bool], ContentBlock] = {}
        room = _MOST_BLOCKS
        cuts = {owner: sorted(places) for owner, places in self._cuts.items()}
        front = min((place for places in self._clips.values() for place in places), default=0)
        for turn in self._turns:
            call = calls[turn.index]
            room -= len(turn.pieces)
            if room < 0:
                raise EditRefused(
                    "Too many calls in one lane to sketch their requests from sizes.",
                    "Use `cacheaudit backtest`, or narrow the session down.",
                )
            drawn = self._draw(turn, call, prompts.get(turn.base), cuts, front, known)
            prompts[turn.index] = drawn
            late, start = self._delays.get(turn.index), self._starts.get(turn.index)
            found[turn.index] = msgspec.structs.replace(
                call, prompt=drawn, started_at=call.started_at if start is None else start
            )
            if late is not None:
                ended = max(late, call.ended_at or late)
                found[turn.index] = msgspec.structs.replace(
                    found[turn.index], first_token_at=late, ended_at=ended
                )
        return found

    def _draw(
        self,
        turn: _Turn,
        call: Call,
        base: Prompt | None,
        cuts: dict[int, list[int]],
        front: int,
        known: dict[tuple[int, int, int, int, str | None, bool], ContentBlock],
    ) -> Prompt:
        marked = self._marked(turn)
        blocks: list[ContentBlock] = []
        total = turn.told.total
        tail = ((turn.index, turn.cached, total),) if total > turn.cached else ()
        for owner, start, end in (*turn.pieces, *tail):
            inner = [place for place in cuts.get(owner, ()) if start < place < end]
            for upto in (*inner, end):
                size = upto - start
                key = (owner, upto, size, len(blocks), turn.ttl, upto in marked)
                block = known.get(key)
                if block is None:
                    block = known[key] = _block(*key, is_front=upto <= front)
                blocks.append(block)
                start = upto
        drawn = tuple(blocks)
        return Prompt(
            provider=call.provider or turn.told.facts.provider,
            model=call.model,
            level_order=_ORDER,
            parameters=(),
            blocks=drawn,
            prefix_digests=chain(_ORDER, (), drawn, base),
        )

    def _marked(self, turn: _Turn) -> set[int]:
        """Choose the ends to mark: the last, and those that later calls read up to next."""
        if turn.told.facts.machine not in MARKED or not turn.is_stored:
            return set()
        needed: list[tuple[int, int]] = []
        for owner, start, end in turn.pieces if self._clips else ():
            for place, times in self._clips.get(owner, {}).items():
                if start < place <= end and times[-1] > turn.index:
                    needed.append((times[bisect_right(times, turn.index)], place))
        return {turn.cached, *(place for _, place in sorted(needed)[:_MOST_CLIPS])}


def _tells_all(told: Told) -> bool:
    """Whether the usage is of one model pass and says how much was stored."""
    is_said = told.facts.machine not in MARKED or told.usage.cache_write is not None
    return is_said and not told.usage.parts and told.total == told.usage.total_input


def _clipped(pieces: tuple[_Piece, ...], place: int) -> tuple[_Piece, ...]:
    """Return the part of a line in front of a place."""
    if pieces and pieces[-1][2] <= place:
        return pieces
    return tuple((o, start, min(end, place)) for o, start, end in pieces if start < place)


def _end(turn: _Turn, place: int) -> tuple[int, int] | None:
    """Identify the prefix of a turn that ends at a place; ``None`` for the empty one."""
    return next(((o, place) for o, start, end in turn.pieces if start < place <= end), None)


def _is_repeated(parent: _Turn, turn: _Turn) -> bool:
    """Whether a call is the one before once more, too soon for its entry to be seen."""
    same = turn.cached == parent.cached > 0 and turn.read == parent.read
    return same and turn.scope == parent.scope and turn.at - parent.readable <= _TOGETHER


def _block(
    owner: int, upto: int, size: int, number: int, ttl: str | None, marked: bool, *, is_front: bool
) -> ContentBlock:
    canonical = f"{owner}:{upto - size}-{upto}".encode()
    return ContentBlock(
        level="system" if is_front else "messages",
        path=f"system[{number}]" if is_front else f"messages[{number}].content[0]",
        kind=SKETCH,
        role=None if is_front else "user",
        message=-1 if is_front else number,
        canonical=canonical,
        digest=digest(canonical),
        tokens=size,
        tokens_origin="counted",
        marker=Marker(ttl) if marked else None,
    )
