"""The pages of one group of layers: what a prompt finds, and the tables that attention reads.

A table lists the pages of one sequence by position. Its first pages may be lent by the cache; all
others belong to the sequence. Pages up to ``published`` are complete and never written again, so a
page may be written exactly if it lies behind them and nobody else holds it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from local_backend.errors import OutOfPagesError
from local_backend.kvcache.base import Match, Pin, VictimSink
from local_backend.kvcache.keys import TokenKey
from local_backend.kvcache.pages import NULL_PAGE, PagePool, SizeInfo
from local_backend.kvcache.specs import GroupSpec
from local_backend.kvcache.store import PageStore
from local_backend.kvcache.tiers.stack import TierStack

NOTHING: frozenset[bytes] = frozenset()


class Table:
    """The pages of one sequence in one group.

    Attributes:
        pages: By position; the null page stands for one that is not needed any more.
        published: Pages that are complete and never written again.
    """

    __slots__ = ("pages", "published")

    def __init__(self, pages: array[int], published: int) -> None:
        self.pages = pages
        self.published = published


@dataclass(slots=True)
class Plan:
    """What a group can restore of a prompt, without having changed anything.

    Attributes:
        length: Tokens in whole pages.
        resident: Pages of them that are in memory and will be lent.
        idle: Evictable pages that lending protects.
        tail_tokens: Tokens of the next page that can be copied.
        restore: Page index and identity of those that a tier has to give.
        place: Where it was found; the group's own affair.
        need: Pages to allocate, as the last `CacheGroup.fits` found.
    """

    length: int
    resident: int
    idle: int
    tail_tokens: int = 0
    restore: Sequence[tuple[int, bytes]] = ()
    place: object = None
    need: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """A page that must be copied before the target is read or written.

    Attributes:
        group: Name of the group.
        source: Page to read. It stays as it is until the copy is done.
        target: Page to write.
        tokens: How many of its first tokens count.
    """

    group: str
    source: int
    target: int
    tokens: int


@dataclass(slots=True)
class Offer:
    """Pages held for a tier until ``release`` is called."""

    keys: list[bytes]
    pages: list[int]
    release: Callable[[], None]


class CacheGroup(ABC):
    """Pages of layers that need the same ones.

    Args:
        spec: The layers.
        pool: Their pages.
        store: The bytes of the pages; None where nobody asks for them.
    """

    def __init__(self, spec: GroupSpec, pool: PagePool, store: PageStore | None) -> None:
        self.spec = spec
        self.pool = pool
        self.store = store
        self.page_size = spec.page_size
        self.owned = 0

    def pages_for(self, tokens: int) -> int:
        """Pages that hold as many tokens."""
        return -(-tokens // self.page_size)

    # What a prompt finds.

    @abstractmethod
    def plan(
        self,
        key: TokenKey,
        limit: int,
        tiers: TierStack | None = None,
        without: Collection[bytes] = NOTHING,
    ) -> Plan:
        """The longest prefix of at most ``limit`` tokens that can be continued from.

        Args:
            key: The prompt.
            limit: Most tokens.
            tiers: Where pages may be besides the memory.
            without: Identities that a tier claimed to have and did not give.
        """

    def need(self, plan: Plan, tokens: int) -> int:
        """Pages to allocate for a sequence of as many tokens that begins as planned."""
        return self.pages_for(tokens) - self._spared(plan)

    @abstractmethod
    def _spared(self, plan: Plan) -> int:
        """Pages at the start of a table that need no allocation."""

    def fits(self, plan: Plan, tokens: int) -> bool:
        """Whether the pages can be had once the planned ones are protected.

        A tail is given up where its source would take the place of a page that is needed.
        """
        room = len(self.pool.free) + self.evictable
        plan.need = need = self.need(plan, tokens)
        if need <= room - plan.idle:
            return True
        if plan.tail_tokens and isinstance(plan.place, Match):
            plan.tail_tokens, plan.idle = 0, plan.place.idle
        return need <= room - plan.idle

    # The life of a table.

    @abstractmethod
    def open(
        self, plan: Plan, key: TokenKey, tokens: int, payloads: Mapping[int, bytes]
    ) -> tuple[Table, Pin | None]:
        """Lend, make room, allocate, and publish what a tier gave.

        Args:
            plan: Fresh, and there is room for it.
            key: The prompt.
            tokens: Tokens that the table shall have pages for.
            payloads: By page index, the bytes of the pages to restore.

        Returns:
            The table, and a pin on the page whose tail is to be copied.
        """

    def grow(self, table: Table, tokens: int) -> int:
        """Add pages so that the table holds as many tokens; how many were added.

        Raises:
            OutOfPagesError: There are not as many; nothing was changed.
        """
        missing = self.pages_for(tokens) - len(table.pages)
        if missing <= 0:
            return 0
        table.pages.extend(self.take(missing))
        return missing

    @abstractmethod
    def commit(self, table: Table, key: TokenKey, computed: int) -> int:
        """Publish pages that are complete, and give up those that are not needed any more.

        Returns:
            How many pages the cache took over.
        """

    @abstractmethod
    def catch_up(self, table: Table, key: TokenKey, length: int) -> None:
        """Put cached pages in place of the sequence's own, up to as many tokens.

        Args:
            table: Published up to less than that.
            key: Its prompt.
            length: Whole pages; `plan` has just found them.
        """

    @abstractmethod
    def fork(self, table: Table) -> Table:
        """A second table with the same content."""

    @abstractmethod
    def cut(self, table: Table, pages: int) -> None:
        """Drop pages of the sequence from an index on."""

    @abstractmethod
    def leave_end(self, table: Table, key: TokenKey, computed: int) -> bool:
        """Offer the cache the page that never became full, before the table is closed.

        Args:
            table: Of the sequence.
            key: Its tokens.
            computed: How many of them are complete.

        Returns:
            Whether the cache took it over.
        """

    @abstractmethod
    def close(self, table: Table) -> None:
        """Give everything back."""

    def is_writable(self, table: Table, index: int) -> bool:
        """Whether the page at an index may be written: nobody else holds it, and it is open."""
        page = table.pages[index]
        return index >= table.published and page != NULL_PAGE and self.pool.holders(page) == 1

    def separate(self, table: Table, index: int) -> tuple[int, int]:
        """Put a page of its own at an index; the old one and the new one.

        The holder's share of the old page is not given back: it must be dropped once the copy ran.

        Raises:
            OutOfPagesError: There is none; nothing was changed.
        """
        old = table.pages[index]
        new = self.take(1)[0]
        table.pages[index] = new
        return old, new

    def take(self, count: int) -> array[int]:
        """Allocate, evicting where the free pages do not suffice.

        Raises:
            OutOfPagesError: There are not as many; nothing was changed.
        """
        pool = self.pool
        short = count - len(pool.free)
        if short > 0:
            if short > self.evictable:
                raise OutOfPagesError(
                    f"{count} pages wanted in group {self.spec.name}: {pool.available} are"
                    f" free, {self.evictable} may be evicted"
                )
            self.evict(short)
        self.owned += count
        return pool.allocate(count)

    def drop(self, pages: array[int]) -> None:
        """Give up a sequence's share of pages."""
        self.owned -= self.pool.drop(pages)

    # Books.

    @property
    @abstractmethod
    def evictable(self) -> int:
        """Cached pages that nobody uses."""

    @property
    @abstractmethod
    def pinned(self) -> int:
        """Cached pages in use."""

    @abstractmethod
    def evict(self, count: int) -> int:
        """Free idle cached pages; how many."""

    @abstractmethod
    def reset(self) -> int:
        """Forget all cached pages; how many there were."""

    @abstractmethod
    def set_victim_sink(self, sink: VictimSink) -> None:
        """Tell somebody of pages about to be evicted."""

    @abstractmethod
    def offer(self, table: Table, start: int) -> Offer:
        """What the last commit published from an index on, held until it is released."""

    @abstractmethod
    def table_pages(self, table: Table) -> Iterator[int]:
        """Pages of a table that belong to the sequence."""

    @abstractmethod
    def cached_pages(self) -> Iterator[int]:
        """Pages that belong to the cache."""

    @abstractmethod
    def check_cache(self) -> None:
        """Check the cache of the group.

        Raises:
            CacheIntegrityError: Something contradicts.
        """

    def sizes(self) -> SizeInfo:
        """Where the pages are. The four numbers are counted apart, not derived."""
        return SizeInfo(
            self.pool.total, self.pool.available, self.evictable, self.pinned + self.owned
        )

    def check(self, tables: Iterable[Table], held: Iterable[int]) -> None:
        """Check everything against what the sequences hold.

        Args:
            tables: Of all sequences.
            held: Pages that pending copies hold.

        Raises:
            CacheIntegrityError: Something contradicts.
        """
        self.check_cache()
        owned = [page for table in tables for page in self.table_pages(table)]
        owned.extend(held)
        self.pool.check(owned, self.cached_pages())
