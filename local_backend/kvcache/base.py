"""What every prefix cache can do, whatever it looks prefixes up with.

The order in which a request goes through a cache is always the same: `match` (changes nothing),
`pin` (protects what was found), `evict` (makes room, never among pinned pages), then, page by
page as they are computed, `extend`; at the end `unpin`. `match` says how many idle pages a pin
would protect, so that a request that does not fit is refused before anything has changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from local_backend.errors import CacheIntegrityError, CacheStateError
from local_backend.kvcache.evict import Learner, Policy
from local_backend.kvcache.keys import TOKEN_BYTES, PageExtra, TokenKey
from local_backend.kvcache.pages import PagePool

# Receives (identity, page) of pages that are about to be evicted, tails first.
VictimSink = Callable[[list[tuple[bytes, int]]], None]


class Match:
    """What a cache holds of a prompt. Valid until the cache changes.

    Attributes:
        length: Tokens found in whole pages.
        pages: Those pages, in order.
        idle: Pages that nobody uses now and that pinning (with the tail) would protect.
        tail: The same match one page longer; of its last page only ``tail_tokens`` agree, so that
            page may be copied, not lent. None where nothing of the next page agrees.
        tail_tokens: See ``tail``.
        root: Identity of the namespace.
        place: Where the cache found it; its own affair.
        offset: Likewise.
        version: State of the cache at that time.
    """

    __slots__ = (
        "idle",
        "length",
        "offset",
        "pages",
        "place",
        "root",
        "tail",
        "tail_tokens",
        "version",
    )

    def __init__(
        self,
        length: int,
        pages: array[int],
        idle: int,
        root: bytes,
        place: Any,
        offset: int,
        version: int,
    ) -> None:
        self.length = length
        self.root = root
        self.pages = pages
        self.idle = idle
        self.place = place
        self.offset = offset
        self.version = version
        self.tail: Match | None = None
        self.tail_tokens = 0


class Pin:
    """Protects a prefix from its start to ``place`` until it is given back.

    Attributes:
        place: Where the prefix ends; the cache's own affair.
        pages: Number of pages protected.
        stamp: Logical time at which it was taken.
        is_live: Whether it was not given back yet.
        tail: A second pin, on the page behind the match of which a part agrees.
    """

    __slots__ = ("is_live", "pages", "place", "stamp", "tail")

    def __init__(self, place: Any, pages: int, stamp: int) -> None:
        self.place = place
        self.pages = pages
        self.stamp = stamp
        self.is_live = True
        self.tail: Pin | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of cached pages, as a snapshot keeps it.

    Attributes:
        parent: Index of the segment that it continues, -1 at the start of a prompt.
        root: Identity of the namespace.
        data: Its tokens.
        pages: Its pages.
        stamp: Last use.
        hits: Number of hits.
        extras: By page inside the segment, what distinguishes it beyond its tokens.
    """

    parent: int
    root: bytes
    data: bytes
    pages: array[int]
    stamp: int
    hits: int
    extras: Mapping[int, PageExtra] = field(default_factory=dict)


@dataclass(slots=True)
class Books:
    """What bookkeeping costs, in counts that do not depend on the machine.

    Attributes:
        updates: Entries whose counters or links were changed.
        splits: Entries cut in two.
        evicted_pages: Pages evicted so far.
    """

    updates: int = 0
    splits: int = 0
    evicted_pages: int = 0


class PrefixCache(ABC):
    """Finds, protects, adds and evicts cached pages of prefixes.

    Args:
        pool: Where evicted pages go back to.
        page_size: Tokens in a page.
        policy: Order of eviction.
        tails: Whether a match also reports a part of one more page.

    Attributes:
        evictable: Cached pages that nobody uses; others only read it.
    """

    name: str
    can_tails = True

    def __init__(
        self, pool: PagePool, page_size: int, policy: Policy, *, tails: bool = False
    ) -> None:
        if page_size < 1:
            raise ValueError(f"a page holds at least one token, not {page_size}")
        if tails and not self.can_tails:
            raise ValueError(f"the {self.name} cache finds whole pages only")
        self.pool = pool
        self.page_size = page_size
        self.page_bytes = page_size * TOKEN_BYTES
        self.tails = tails and page_size > 1
        self.books = Books()
        self.victim_sink: VictimSink | None = None
        self._queue = policy.make_queue()
        self._learner = self._queue if isinstance(self._queue, Learner) else None
        self._clock = 0
        self._version = 0
        self.evictable = 0
        self._cached = 0

    @property
    def pinned(self) -> int:
        """Cached pages in use."""
        return self._cached - self.evictable

    @property
    def cached(self) -> int:
        """All cached pages."""
        return self._cached

    @property
    @abstractmethod
    def entries(self) -> int:
        """How many records the cache keeps for its pages."""

    @abstractmethod
    def match(self, key: TokenKey, limit: int) -> Match:
        """The longest cached prefix of at most ``limit`` tokens. Changes nothing."""

    @abstractmethod
    def pin(self, match: Match, *, tail: bool = False) -> Pin:
        """Protect what was found, and count it as used.

        Args:
            match: Fresh.
            tail: Also protect the page behind it, by a pin of its own.

        Raises:
            CacheStateError: The cache changed since the match.
        """

    @abstractmethod
    def repin(self, pin: Pin) -> Pin:
        """A second pin on the same prefix, without counting a use."""

    @abstractmethod
    def extend(self, pin: Pin, key: TokenKey, pages: array[int]) -> int:
        """Publish pages that follow a pinned prefix, and move the pin to their end.

        Args:
            pin: Ends where the pages begin.
            key: The prompt, at least to the end of the pages.
            pages: Complete, and never written again.

        Returns:
            How many of the first pages were cached already. Those stay with the caller; all
            others belong to the cache from now on.
        """

    @abstractmethod
    def follow(self, pin: Pin, key: TokenKey, limit: int) -> array[int]:
        """Move a pin on over pages that others have published behind it, as a use.

        Args:
            pin: Live.
            key: The prompt that the pin belongs to.
            limit: Most tokens of the prompt to protect.

        Returns:
            The pages gained.
        """

    @abstractmethod
    def add_end(self, pin: Pin, key: TokenKey, tokens: int, page: int) -> bool:
        """Keep a page that never became full, to be copied by prompts that go on like it.

        It is found as a tail only, never lent, written to a tier or saved, and goes before any
        whole page does.

        Args:
            pin: Ends where the page begins.
            key: The prompt, at least to the last of these tokens.
            tokens: How many of the page's first tokens are complete.
            page: Belongs to the caller.

        Returns:
            Whether the cache took it over; not where it has as much already, or keeps no tails.
        """

    @abstractmethod
    def unpin(self, pin: Pin, *, is_use: bool = True) -> None:
        """Give a pin back; its pages may be evicted once no other pin protects them.

        Args:
            pin: Live.
            is_use: Whether its pages count as used until now.

        Raises:
            CacheStateError: It was given back before.
        """

    @abstractmethod
    def evict(self, count: int) -> int:
        """Free ``count`` idle pages, or as many as there are, ends of chains first.

        Returns:
            How many were freed.
        """

    @abstractmethod
    def pinned_keys(self, pin: Pin, start: int) -> list[tuple[bytes, int]]:
        """Identity and page of everything that a pin protects, from a page on."""

    @abstractmethod
    def all_pages(self) -> Iterator[int]:
        """Every cached page."""

    @abstractmethod
    def export(self) -> list[Segment]:
        """Everything cached, parents before their continuations."""

    @abstractmethod
    def adopt(self, segments: Sequence[Segment]) -> None:
        """Take over what ``export`` gave, into an empty cache.

        Raises:
            CacheStateError: The cache is not empty.
        """

    @abstractmethod
    def check_integrity(self) -> None:
        """Compare every counter and link with the entries themselves.

        Raises:
            CacheIntegrityError: Something contradicts.
        """

    def reset(self) -> int:
        """Forget everything.

        Returns:
            How many pages were freed.

        Raises:
            CacheStateError: Pages are in use.
        """
        if self.pinned:
            raise CacheStateError(
                f"{self.pinned} cached pages are in use", "release the sequences first"
            )
        return self.evict(self._cached)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _require_live(self, pin: Pin) -> None:
        if not pin.is_live:
            raise CacheStateError("the pin was given back before")

    def _require_fresh(self, match: Match) -> None:
        if match.version != self._version:
            raise CacheStateError("the cache changed since the match", "match again")

    def _require_empty(self) -> None:
        if self._cached:
            raise CacheStateError("only an empty cache can take over a snapshot")


def require(is_true: bool, what: str) -> None:
    """Raise where the books are wrong.

    Raises:
        CacheIntegrityError: The condition does not hold.
    """
    if not is_true:
        raise CacheIntegrityError(what)
