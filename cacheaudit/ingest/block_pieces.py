"""Prompts recorded as hashes of fixed runs of tokens, cut into content blocks where they part.

A trace names every full run of tokens by a number; where one content block ends and the next begins
it does not say. What can be told is where two prompts part and where one of them ends: there a
prompt is cut. What a prompt has behind its last full run is taken for the beginning of the run that
the next prompt continues with, since conversations grow at their end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cacheaudit.model.prompt import DIGEST_BYTES

_ROOT: Final = 0


class Piece(msgspec.Struct, frozen=True):
    """A stretch of a prompt.

    Attributes:
        start: Token at which it begins.
        end: Token before which it ends.
        digest: Identity of its content: equal for equal runs.
    """

    start: int
    end: int
    digest: bytes


class _Request(msgspec.Struct):
    ids: Sequence[int | str]
    tail: int
    end: int
    cuts: frozenset[int]


class Pieces:
    """Cuts the prompts of one trace.

    Args:
        size: Tokens in a run.
        salt: What sets the numbers of this trace apart from those of others.
    """

    def __init__(self, size: int, salt: bytes) -> None:
        self._size = size
        self._salt = salt
        # Node and number of a run → node behind it. Node 0 is the empty prompt.
        self._next: dict[tuple[int, int | str], int] = {}
        self._children: list[int] = [0]
        self._ends: set[int] = {_ROOT}
        # Node → prompts that end there with a part of a run, oldest first.
        self._tails: dict[int, list[int]] = {}
        # Node, prompt → number of the run that its tail begins.
        self._continued: dict[int, int | str] = {}
        # Node and number of a run → tokens after which a prompt ended inside it.
        self._inner: dict[tuple[int, int | str], set[int]] = {}
        self._requests: list[_Request] = []

    def add(self, ids: Sequence[int | str], total: int, cuts: Sequence[int] = ()) -> None:
        """Take in a prompt; in order of time.

        Args:
            ids: Numbers of its full runs.
            total: Tokens of the whole prompt; what lies beyond its runs has no number.
            cuts: Tokens at which it is to be cut besides, such as the end of the system prompt.
        """
        node, after, children = _ROOT, self._next, self._children
        for number in ids:
            key = node, number
            found = after.get(key)
            if found is None:
                found = after[key] = len(children)
                children[node] += 1
                children.append(0)
                self._continue(node, number)
            node = found
        tail = max(0, total - len(ids) * self._size)
        self._ends.add(node)
        if 0 < tail < self._size:
            self._tails.setdefault(node, []).append(len(self._requests))
        places = frozenset(round(cut / self._size) for cut in cuts)
        self._requests.append(_Request(ids, tail, node, places))

    def _continue(self, node: int, number: int | str) -> None:
        """Let the prompts that ended here go on in a new run."""
        for request in self._tails.pop(node, ()):
            self._continued[request] = number
            inner = self._inner.setdefault((node, number), set())
            inner.add(self._requests[request].tail)

    def all(self) -> Iterator[list[Piece]]:
        """Yield the pieces of every prompt, in the order in which they were added."""
        for index, request in enumerate(self._requests):
            yield list(self._cut(index, request))

    def _cut(self, index: int, request: _Request) -> Iterator[Piece]:
        size, start = self._size, 0
        content = _Content(self._salt)
        node = _ROOT
        for place, number in enumerate(request.ids):
            at = place * size
            if at > start and (self._parts(node) or place in request.cuts):
                yield content.piece(start, at)
                start = at
            done = 0
            for inner in sorted(self._inner.get((node, number), ())):
                content.add(number, done, inner)
                yield content.piece(start, at + inner)
                start, done = at + inner, inner
            content.add(number, done, size)
            node = self._next[node, number]
        at = len(request.ids) * size
        if at > start:
            yield content.piece(start, at)
        if request.tail:
            yield from self._tail(index, request, content, at)

    def _parts(self, node: int) -> bool:
        return self._children[node] > 1 or node in self._ends

    def _tail(self, index: int, request: _Request, content: _Content, at: int) -> Iterator[Piece]:
        number = self._continued.get(index)
        if number is None:
            content.add(f"end of {index}", 0, request.tail)
            yield content.piece(at, at + request.tail)
            return
        done = 0
        for inner in sorted(self._inner[request.end, number]):
            if inner <= request.tail:
                content.add(number, done, inner)
                yield content.piece(at + done, at + inner)
                done = inner


class _Content:
    """Digest of a stretch, fed run by run."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._state = self._fresh()

    def add(self, number: int | str, start: int, end: int) -> None:
        """Add tokens ``start`` to ``end`` of a run."""
        if end > start:
            self._state.update(f"{number}:{start}-{end};".encode())

    def piece(self, start: int, end: int) -> Piece:
        """Close a stretch and begin another."""
        digest = self._state.digest()
        self._state = self._fresh()
        return Piece(start, end, digest)

    def _fresh(self) -> hashlib.blake2b:
        return hashlib.blake2b(self._salt, digest_size=DIGEST_BYTES)
