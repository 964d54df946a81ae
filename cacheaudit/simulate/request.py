"""What a cache machine is fed: prefixes, sizes, markers and times of one request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, overload

import msgspec

from cacheaudit._typing import override
from cacheaudit.model.prompt import ContentBlock, Prompt

SKETCH: Final = "sketch"
"""Kind of the content blocks of a prompt that was sketched from sizes."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A cache marker of a request.

    Attributes:
        index: Content block that it stands on, counted in render order.
        ttl: ``5m``, ``1h`` …; ``None``: the provider's default.
        automatic: The request asked the provider to place it.
        own: The provider placed it unasked, on results of its own tools.
    """

    index: int
    ttl: str | None = None
    automatic: bool = False
    own: bool = False


class SimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request as a cache sees it.

    Attributes:
        id: Call id.
        at: Request start, seconds.
        readable_at: When what it writes can be read: its first streamed token.
        ended_at: End of the response.
        model: Model id.
        scope: Isolation: workspace, account, cache key, lane of a server. Requests of different
            scopes share nothing.
        digests: Cumulative identity after each content block, as
            :func:`cacheaudit.model.prompt.chain` makes it.
        sizes: Cumulative tokens after each content block; may run on beyond the last of them.
        kinds: Kind of each content block.
        marks: Markers in render order.
        variant: Settings that some models render ahead of the tools, as one text; empty where
            none is set.
        is_prewarm: Nothing is generated.
        roles: Role of each content block, where the machine looks at messages.
        messages: Index of the message of each content block, -1 outside; as for ``roles``.
        only_marked: Nothing but marked prefixes is to be kept.
        ttl: Lifetime that the request asks for as a whole.
        cached_object: Name of a cache object that stands before the first content block.
        object_tokens: Its size; ``None``: not known.
        invalid: Why the provider would refuse it, where that is seen in the body alone.
    """

    id: str
    at: float
    readable_at: float
    ended_at: float
    model: str
    scope: str = ""
    digests: Sequence[bytes]
    sizes: Sequence[int]
    kinds: Sequence[str]
    marks: tuple[Mark, ...] = ()
    variant: str = ""
    is_prewarm: bool = False
    roles: Sequence[str | None] = ()
    messages: Sequence[int] = ()
    only_marked: bool = False
    ttl: str | None = None
    cached_object: str | None = None
    object_tokens: int | None = None
    invalid: str | None = None

    @property
    def total(self) -> int:
        """Tokens of the whole prompt."""
        return self.sizes[len(self.digests) - 1] if self.digests else 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache did with a request.

    Attributes:
        read: Tokens read.
        writes: Tokens written, by lifetime.
        uncached: Tokens neither read nor written.
        hit: Index of the content block up to which the prefix was read, -1 for none.
        hit_from: Id of the request that wrote what was read.
        notes: Why not more: ``expired``, ``below_minimum``, ``not_yet_readable``,
            ``beyond_lookback``, ``no_marker`` …; ``best_effort`` where nothing is promised.
        refused: The provider would answer 400, and why.
    """

    read: int
    writes: dict[str, int]
    uncached: int
    hit: int = -1
    hit_from: str | None = None
    notes: tuple[str, ...] = ()
    refused: str | None = None

    @property
    def written(self) -> int:
        """Tokens written, whatever their lifetime."""
        return sum(self.writes.values())


class Field(Sequence[Any]):
    """One attribute of every content block, looked up when asked for."""

    __slots__ = ("_blocks", "_name")

    def __init__(self, blocks: Sequence[ContentBlock], name: str) -> None:
        self._blocks = blocks
        self._name = name

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    @override
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [getattr(block, self._name) for block in self._blocks[index]]
        return getattr(self._blocks[index], self._name)

    @override
    def __len__(self) -> int:
        return len(self._blocks)

    @override
    def __iter__(self) -> Iterator[Any]:
        name = self._name
        return (getattr(block, name) for block in self._blocks)


class Sums(Sequence[int]):
    """Cumulative sizes by prefix: prompts that share a prefix share what is known of it."""

    __slots__ = ("_digests", "_known")

    def __init__(self, digests: Sequence[bytes], known: Mapping[bytes, int]) -> None:
        self._digests = digests
        self._known = known

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    @override
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self._known[digest] for digest in self._digests[index]]
        return self._known[self._digests[index]]

    @override
    def __len__(self) -> int:
        return len(self._digests)


def is_sketch(prompt: Prompt | None) -> bool:
    """Whether a prompt was sketched from sizes."""
    return prompt is not None and bool(prompt.blocks) and prompt.blocks[0].kind == SKETCH


def known_prefix(digests: Sequence[bytes], known: Mapping[bytes, Any]) -> int:
    """Count the leading prefixes that ``known`` holds, by bisection.

    ``known`` must hold every prefix of what it holds.
    """
    low, high = 0, len(digests)
    if high and digests[-1] in known:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if digests[middle - 1] in known:
            low = middle
        else:
            high = middle - 1
    return low
