"""The pool of pages: who may have one, who shares one, which copies are due.

A page belongs to one owner: a sequence that writes it, or a prefix cache that lends it out. Only
pages of sequences are shared page by page (after a fork); what a cache owns is protected by pins
on its entries. The usual page therefore needs no counter of its own, and taking, publishing and
giving back a thousand pages costs as much as ten.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from local_backend.errors import CacheIntegrityError, OutOfPagesError

# Stands in a table for a position whose page is gone or was never needed. Never handed out.
NULL_PAGE = 0


def no_pages() -> array[int]:
    """An empty list of pages."""
    return array("i")


@dataclass(frozen=True, slots=True)
class SizeInfo:
    """Where the pages of a pool are; each is counted once.

    Attributes:
        total: All, without the null page.
        available: Free.
        evictable: Cached, and in nobody's use.
        protected: In use.
    """

    total: int
    available: int
    evictable: int
    protected: int

    @property
    def usable(self) -> int:
        """What an admission may count on."""
        return self.available + self.evictable


class PagePool:
    """A fixed number of pages and the list of free ones.

    Args:
        pages: How many, without the null page.

    Attributes:
        total: Likewise.
        free: Pages that nobody has, the next one last; others only read it.
    """

    __slots__ = ("_holders", "free", "total")

    def __init__(self, pages: int) -> None:
        if pages < 1:
            raise ValueError(f"a pool needs at least one page, not {pages}")
        self.total = pages
        self.free = array("i", range(pages, 0, -1))
        self._holders: dict[int, int] = {}

    @property
    def available(self) -> int:
        """Number of free pages."""
        return len(self.free)

    def allocate(self, count: int) -> array[int]:
        """Take free pages; the one who asks owns them.

        Raises:
            OutOfPagesError: There are not as many. None is taken.
        """
        free = self.free
        if count > len(free):
            raise OutOfPagesError(f"{count} pages wanted, {len(free)} of {self.total} free")
        if count <= 0:
            return no_pages()
        taken = free[-count:]
        del free[-count:]
        return taken

    def share(self, pages: Iterable[int]) -> None:
        """Add one more holder to pages that a sequence owns."""
        holders = self._holders
        for page in pages:
            holders[page] = holders.get(page, 1) + 1

    def drop(self, pages: array[int]) -> int:
        """Remove one holder; a page without any is free, and used again first.

        Returns:
            How many became free.
        """
        if not self._holders:
            self.free.extend(pages)
            return len(pages)
        before = len(self.free)
        holders = self._holders
        for page in pages:
            count = holders.get(page, 1)
            if count == 1:
                self.free.append(page)
            elif count == 2:
                del holders[page]
            else:
                holders[page] = count - 1
        return len(self.free) - before

    def holders(self, page: int) -> int:
        """How many sequences hold an allocated page, or 1 for the cache that owns it."""
        return self._holders.get(page, 1)

    @property
    def shared_pages(self) -> int:
        """How many pages have more than one holder."""
        return len(self._holders)

    def check(self, owned: Iterable[int], cached: Iterable[int]) -> None:
        """Compare the books with what the owners hold.

        Args:
            owned: Pages of all sequences and pending copies, once for each holder.
            cached: Pages of the prefix cache.

        Raises:
            CacheIntegrityError: A page is lost, doubly owned, or wrongly counted.
        """
        held = Counter(owned)
        kept = Counter(cached)
        free = Counter(self.free)
        if any(count != self._holders.get(page, 1) for page, count in held.items()):
            raise CacheIntegrityError("holders of a page are not as many as counted")
        if self._holders.keys() - held.keys():
            raise CacheIntegrityError("a page counts as shared that no sequence holds")
        for name, some, other in (
            ("free and owned", free, held),
            ("free and cached", free, kept),
            ("owned and cached", held, kept),
        ):
            if both := some.keys() & other.keys():
                raise CacheIntegrityError(f"pages are both {name}: {sorted(both)[:8]}")
        if any(count > 1 for count in free.values()) or any(c > 1 for c in kept.values()):
            raise CacheIntegrityError("a page is listed twice")
        everything = free.keys() | held.keys() | kept.keys()
        if everything != set(range(1, self.total + 1)):
            lost = set(range(1, self.total + 1)) - everything
            raise CacheIntegrityError(f"pages are lost or unknown: {sorted(lost)[:8]}")
