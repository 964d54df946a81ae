"""Layers that read the recent tokens only: any stretch of pages may be there, or be gone."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from local_backend._typing import override
from local_backend.errors import CacheStateError
from local_backend.kvcache.base import Pin, VictimSink, require
from local_backend.kvcache.evict import Entry, Policy
from local_backend.kvcache.groups import NOTHING, CacheGroup, Offer, Plan, Table
from local_backend.kvcache.keys import TokenKey
from local_backend.kvcache.pages import NULL_PAGE, PagePool, no_pages
from local_backend.kvcache.specs import GroupSpec
from local_backend.kvcache.store import PageStore
from local_backend.kvcache.tiers.stack import TierStack


class WindowPage(Entry):
    """One cached page, found by the identity of the prefix that it ends."""

    __slots__ = ("data", "index", "key", "page")

    def __init__(self, key: bytes, data: bytes, index: int, page: int, stamp: int) -> None:
        super().__init__(stamp)
        self.key = key
        self.data = data
        self.index = index
        self.page = page


class WindowTable(Table):
    """A table whose early pages come and go.

    Attributes:
        lent: Cached pages in use, by position.
        fresh: What the last commit published, also where it left the window at once.
    """

    __slots__ = ("fresh", "lent")

    def __init__(self, pages: array[int], published: int, lent: dict[int, WindowPage]) -> None:
        super().__init__(pages, published)
        self.lent = lent
        self.fresh: list[WindowPage] = []


@dataclass(slots=True)
class _Found:
    entries: dict[int, WindowPage] = field(default_factory=dict)


class WindowGroup(CacheGroup):
    """Layers with a window; pages are cached one by one, whether or not earlier ones are."""

    def __init__(
        self, spec: GroupSpec, pool: PagePool, store: PageStore | None, policy: Policy
    ) -> None:
        super().__init__(spec, pool, store)
        self._entries: dict[bytes, WindowPage] = {}
        self._queue = policy.make_queue()
        self._idle = 0
        self._clock = 0
        self._sink: VictimSink | None = None

    # What a prompt finds.

    def _entry(self, key: TokenKey, index: int) -> WindowPage | None:
        """The page of an identity, if its own tokens agree too."""
        identity = key.chain(self.page_size, index + 1)[index]
        entry = self._entries.get(identity)
        if entry is None or entry.data != self._data(key, index):
            return None
        return entry

    def _data(self, key: TokenKey, index: int) -> bytes:
        step = self.page_size * 4
        return key.data[index * step : (index + 1) * step]

    @override
    def plan(
        self,
        key: TokenKey,
        limit: int,
        tiers: TierStack | None = None,
        without: Collection[bytes] = NOTHING,
    ) -> Plan:
        count = min(limit, len(key)) // self.page_size
        chain = key.chain(self.page_size, count)[:count]
        here = {i: entry for i in range(count) if (entry := self._entry(key, i)) is not None}
        away: set[bytes] = set()
        if tiers is not None:
            away = tiers.held(self.spec, [k for i, k in enumerate(chain) if i not in here])
            away.difference_update(without)
        end = count
        while end:
            first = self.spec.first_needed(end * self.page_size)
            gaps = (i for i in range(end - 1, first - 1, -1) if i not in here)
            gap = next((i for i in gaps if chain[i] not in away), None)
            if gap is None:
                break
            end = gap  # nothing longer can do without that page
        return self._plan(chain, here, end)

    def _plan(self, chain: Sequence[bytes], here: dict[int, WindowPage], end: int) -> Plan:
        length = end * self.page_size
        found = _Found()
        restore = []
        for index in range(self.spec.first_needed(length), end):
            if index in here:
                found.entries[index] = here[index]
            else:
                restore.append((index, chain[index]))
        idle = sum(1 for entry in found.entries.values() if entry.lock == 0)
        plan = Plan(length, len(found.entries), idle, 0, restore)
        plan.place = found
        return plan

    @override
    def _spared(self, plan: Plan) -> int:
        skipped = self.spec.first_needed(plan.length) if plan.length else 0
        return skipped + plan.resident

    # The life of a table.

    @override
    def open(
        self, plan: Plan, key: TokenKey, tokens: int, payloads: Mapping[int, bytes]
    ) -> tuple[WindowTable, Pin | None]:
        found = plan.place
        if not isinstance(found, _Found):
            raise TypeError("the plan is of another group")
        self._clock += 1
        for entry in found.entries.values():
            self._lock(entry)
            entry.stamp = self._clock
            entry.hits += 1
        end = plan.length // self.page_size
        fresh = iter(self.take(self.pages_for(tokens) - self._spared(plan)))
        pages = no_pages()
        first = self.spec.first_needed(plan.length) if plan.length else 0
        for index in range(self.pages_for(tokens)):
            if index < first:
                pages.append(NULL_PAGE)
            elif index in found.entries:
                pages.append(found.entries[index].page)
            else:
                pages.append(next(fresh))
        table = WindowTable(pages, end, dict(found.entries))
        for index, payload in payloads.items():
            if self.store is not None:
                self.store.write_page(pages[index], payload)
            self._publish(table, key, index)
        return table, None

    def _lock(self, entry: WindowPage) -> None:
        if entry.lock == 0:
            self._idle -= 1
            self._queue.discard(entry)
        entry.lock += 1

    def _unlock(self, entry: WindowPage, *, is_use: bool = True) -> None:
        entry.lock -= 1
        if is_use:
            entry.stamp = self._clock
        if entry.lock == 0:
            self._idle += 1
            self._queue.push(entry, entry.index, 1, self._clock)

    def _publish(self, table: WindowTable, key: TokenKey, index: int) -> bool:
        """Hand a page to the cache; False where it has one of that identity."""
        identity = key.chain(self.page_size, index + 1)[index]
        page = table.pages[index]
        if identity in self._entries or self.pool.holders(page) > 1:
            return False
        entry = WindowPage(identity, self._data(key, index), index, page, self._clock)
        entry.lock = 1
        self._entries[identity] = entry
        table.lent[index] = entry
        table.fresh.append(entry)
        self.owned -= 1
        return True

    @override
    def commit(self, table: Table, key: TokenKey, computed: int) -> int:
        if not isinstance(table, WindowTable):
            raise TypeError("the table is of another group")
        end = computed // self.page_size
        count = 0
        table.fresh = []
        for index in range(table.published, end):
            if table.pages[index] != NULL_PAGE:
                count += self._publish(table, key, index)
        table.published = max(table.published, end)
        self._retire(table, min(self.spec.first_needed(computed), end))
        return count

    def _retire(self, table: WindowTable, first: int) -> None:
        """Give up the pages before the window."""
        self._clock += 1
        for index in range(first - 1, -1, -1):
            page = table.pages[index]
            if page == NULL_PAGE:
                break
            self._release(table, index)
            table.pages[index] = NULL_PAGE

    def _release(self, table: WindowTable, index: int) -> None:
        entry = table.lent.pop(index, None)
        if entry is not None:
            self._unlock(entry)
        else:
            self.drop(table.pages[index : index + 1])

    @override
    def catch_up(self, table: Table, key: TokenKey, length: int) -> None:
        if not isinstance(table, WindowTable):
            raise TypeError("the table is of another group")
        self._clock += 1
        end = length // self.page_size
        for index in range(max(self.spec.first_needed(length), table.published), end):
            entry = self._entry(key, index)
            if entry is None:
                raise CacheStateError("the cache changed since the plan")
            self._lock(entry)
            entry.stamp = self._clock
            entry.hits += 1
            self.drop(table.pages[index : index + 1])
            table.pages[index] = entry.page
            table.lent[index] = entry
        table.published = end
        self._retire(table, self.spec.first_needed(length))

    @override
    def fork(self, table: Table) -> WindowTable:
        if not isinstance(table, WindowTable):
            raise TypeError("the table is of another group")
        for entry in table.lent.values():
            self._lock(entry)
        self.pool.share(self.table_pages(table))
        return WindowTable(table.pages[:], table.published, dict(table.lent))

    @override
    def cut(self, table: Table, pages: int) -> None:
        if pages < table.published:
            raise ValueError("published pages cannot be cut off")
        gone = table.pages[pages:]
        del table.pages[pages:]
        self.drop(gone)

    @override
    def leave_end(self, table: Table, key: TokenKey, computed: int) -> bool:
        return False

    @override
    def close(self, table: Table) -> None:
        if not isinstance(table, WindowTable):
            raise TypeError("the table is of another group")
        self._clock += 1
        for index in range(len(table.pages) - 1, -1, -1):
            if table.pages[index] != NULL_PAGE:
                self._release(table, index)
        table.pages = no_pages()

    # Books.

    @property
    @override
    def evictable(self) -> int:
        return self._idle

    @property
    @override
    def pinned(self) -> int:
        return len(self._entries) - self._idle

    @override
    def evict(self, count: int) -> int:
        freed = no_pages()
        victims: list[tuple[bytes, int]] = []
        while len(freed) < count:
            entry = self._queue.first(self._clock)
            if not isinstance(entry, WindowPage):
                break
            self._queue.pop()
            del self._entries[entry.key]
            freed.append(entry.page)
            victims.append((entry.key, entry.page))
        self._idle -= len(freed)
        if victims and self._sink is not None:
            self._sink(victims)
        self.pool.drop(freed)
        return len(freed)

    @override
    def reset(self) -> int:
        if self.pinned:
            raise CacheStateError(
                f"{self.pinned} cached pages are in use", "release the sequences first"
            )
        return self.evict(len(self._entries))

    @override
    def set_victim_sink(self, sink: VictimSink) -> None:
        self._sink = sink

    @override
    def offer(self, table: Table, start: int) -> Offer:
        if not isinstance(table, WindowTable):
            raise TypeError("the table is of another group")
        entries = [entry for entry in table.fresh if entry.index >= start]
        for entry in entries:
            self._lock(entry)

        def release() -> None:
            for entry in reversed(entries):
                self._unlock(entry, is_use=False)

        return Offer([entry.key for entry in entries], [e.page for e in entries], release)

    def entries(self) -> Iterator[WindowPage]:
        """All cached pages."""
        return iter(self._entries.values())

    def adopt(self, key: bytes, data: bytes, index: int, page: int, stamp: int, hits: int) -> None:
        """Take over an idle page from a snapshot."""
        entry = WindowPage(key, data, index, page, stamp)
        entry.hits = hits
        self._entries[key] = entry
        self._idle += 1
        self._clock = max(self._clock, stamp)
        self._queue.push(entry, index, 1, self._clock)

    @override
    def table_pages(self, table: Table) -> Iterator[int]:
        if isinstance(table, WindowTable):
            for index, page in enumerate(table.pages):
                if page != NULL_PAGE and index not in table.lent:
                    yield page

    @override
    def cached_pages(self) -> Iterator[int]:
        return (entry.page for entry in self._entries.values())

    @override
    def check_cache(self) -> None:
        idle = [entry for entry in self._entries.values() if entry.lock == 0]
        require(len(idle) == self._idle, "evictable pages are miscounted")
        require(len(idle) == len(self._queue), "candidates are miscounted")
        for key, entry in self._entries.items():
            require(entry.key == key, "a page is filed wrongly")
            require(entry.lock >= 0, "a page was unlocked too often")
            require(bool(entry.ticket) == (entry.lock == 0), "wrong queue")
