"""What a cache machine is fed: prefixes, sizes, markers and times of one request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cacheaudit.model.prompt import Prompt


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A cache marker of a request.

    Attributes:
        index: Content block that it stands on, counted in render order.
        ttl: ``5m``, ``1h`` …; ``None``: the provider's default.
        automatic: The provider placed it by itself.
    """

    index: int
    ttl: str | None = None
    automatic: bool = False


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
        sizes: Cumulative tokens after each content block, same length.
        kinds: Kind of each content block.
        marks: Markers in render order.
        variant: Settings that some models render ahead of the tools, as one text; empty where
            none is set.
        is_prewarm: Nothing is generated.
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

    @property
    def total(self) -> int:
        """Tokens of the whole prompt."""
        return self.sizes[-1] if self.sizes else 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache did with a request.

    Attributes:
        read: Tokens read.
        writes: Tokens written, by lifetime.
        uncached: Tokens neither read nor written.
        hit: Index of the content block up to which the prefix was read, -1 for none.
        hit_from: Id of the request that wrote what was read.
        notes: Why not more: ``expired``, ``below_minimum``, ``not_yet_readable``, ``no_marker`` …
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


def cumulative(prompt: Prompt, previous: tuple[Prompt, Sequence[int]] | None = None) -> list[int]:
    """Add up the sizes of content blocks.

    Args:
        prompt: Every content block has a size.
        previous: An earlier prompt with its sums, taken over for the content blocks that both
            share; the work is then proportional to what is new.
    """
    sums: list[int] = []
    running = start = 0
    if previous is not None:
        start = _shared(prompt, previous[0])
        sums = list(previous[1][:start])
        running = sums[-1] if sums else 0
    for block in prompt.blocks[start:]:
        running += block.tokens or 0
        sums.append(running)
    return sums


def _shared(mine: Prompt, theirs: Prompt) -> int:
    """Count leading content blocks with equal identity and equal size, by bisection."""
    low, high = 0, min(len(mine.blocks), len(theirs.blocks))
    while low < high:
        middle = (low + high + 1) // 2
        if mine.prefix_digests[middle - 1] == theirs.prefix_digests[middle - 1]:
            low = middle
        else:
            high = middle - 1
    while low and mine.blocks[low - 1].tokens != theirs.blocks[low - 1].tokens:
        low -= 1
    return low
