"""Layers that need the whole prefix; a prefix cache finds it."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping

from local_backend._typing import override
from local_backend.kvcache.base import Match, Pin, PrefixCache, VictimSink
from local_backend.kvcache.groups import NOTHING, CacheGroup, Offer, Plan, Table
from local_backend.kvcache.keys import TokenKey
from local_backend.kvcache.pages import PagePool, no_pages
from local_backend.kvcache.specs import GroupSpec
from local_backend.kvcache.store import PageStore
from local_backend.kvcache.tiers.stack import TierStack


class PagedTable(Table):
    """A table whose start the cache lends.

    Attributes:
        pin: Protects what is lent and what was published.
        own_from: First page that still belongs to the sequence.
        duplicates: Earlier pages that do, since the cache had others with the same content.
    """

    __slots__ = ("duplicates", "own_from", "pin")

    def __init__(self, pages: array[int], published: int, pin: Pin) -> None:
        self.pages = pages
        self.pin = pin
        self.published = self.own_from = published
        self.duplicates = no_pages()


class PagedGroup(CacheGroup):
    """Layers that need the whole prefix; one prefix cache finds it."""

    def __init__(
        self, spec: GroupSpec, pool: PagePool, store: PageStore | None, cache: PrefixCache
    ) -> None:
        super().__init__(spec, pool, store)
        self.cache = cache

    @override
    def plan(
        self,
        key: TokenKey,
        limit: int,
        tiers: TierStack | None = None,
        without: Collection[bytes] = NOTHING,
    ) -> Plan:
        match = self.cache.match(key, limit)
        tail = match.tail
        idle = match.idle if tail is None else tail.idle
        resident = len(match.pages)
        plan = Plan(match.length, resident, idle, match.tail_tokens, (), match)
        if tiers is not None:
            self._add_restorable(plan, match, key, limit, tiers, without)
        return plan

    def _add_restorable(
        self,
        plan: Plan,
        match: Match,
        key: TokenKey,
        limit: int,
        tiers: TierStack,
        without: Collection[bytes],
    ) -> None:
        last = min(limit, len(key)) // self.page_size
        chain = key.chain(self.page_size, last)[plan.resident : last]
        held = tiers.held(self.spec, chain) if chain else set()
        restore: list[tuple[int, bytes]] = []
        for index, identity in enumerate(chain, plan.resident):
            if identity not in held or identity in without:
                break
            restore.append((index, identity))
        if restore:
            # A whole page beats a part of one.
            plan.restore = restore
            plan.length += len(restore) * self.page_size
            plan.tail_tokens = 0
            plan.idle = match.idle

    @override
    def need(self, plan: Plan, tokens: int) -> int:
        return -(-tokens // self.page_size) - plan.resident

    @override
    def _spared(self, plan: Plan) -> int:
        return plan.resident

    @override
    def fits(self, plan: Plan, tokens: int) -> bool:
        # The usual case without a call; the rest is decided where it is for all groups.
        plan.need = need = -(-tokens // self.page_size) - plan.resident
        room = len(self.pool.free) + self.cache.evictable - plan.idle
        return need <= room or super().fits(plan, tokens)

    @override
    def open(
        self, plan: Plan, key: TokenKey, tokens: int, payloads: Mapping[int, bytes]
    ) -> tuple[PagedTable, Pin | None]:
        match = plan.place
        if not isinstance(match, Match):
            raise TypeError("the plan is of another group")
        cache, pool = self.cache, self.pool
        pin = cache.pin(match, tail=plan.tail_tokens > 0)
        pages = match.pages
        need = -(-tokens // self.page_size) - plan.resident
        short = need - len(pool.free)
        if short > 0:
            cache.evict(short)
        pages += pool.allocate(need)
        self.owned += need
        table = PagedTable(pages, plan.resident, pin)
        if payloads and self.store is not None:
            for index, payload in payloads.items():
                self.store.write_page(pages[index], payload)
            self.commit(table, key, plan.length)
        return table, pin.tail

    @override
    def commit(self, table: Table, key: TokenKey, computed: int) -> int:
        if not isinstance(table, PagedTable):
            raise TypeError("the table is of another group")
        begin, end = table.published, computed // self.page_size
        if end <= begin:
            return 0
        fresh = table.pages[begin:end]
        if self.pool.shared_pages:
            # What a fork still holds cannot belong to the cache alone.
            shared = next((i for i, page in enumerate(fresh) if self.pool.holders(page) > 1), None)
            fresh = fresh[:shared]
            end = begin + len(fresh)
        known = self.cache.extend(table.pin, key, fresh)
        if known:
            table.duplicates.extend(fresh[:known])
        table.published = table.own_from = end
        self.owned -= len(fresh) - known
        return len(fresh) - known

    @override
    def catch_up(self, table: Table, key: TokenKey, length: int) -> None:
        if not isinstance(table, PagedTable):
            raise TypeError("the table is of another group")
        begin, end = table.published, length // self.page_size
        pages = self.cache.follow(table.pin, key, length)
        own = table.pages[begin:end]
        table.pages[begin:end] = pages
        table.published = table.own_from = end
        self.drop(own)

    @override
    def fork(self, table: Table) -> PagedTable:
        if not isinstance(table, PagedTable):
            raise TypeError("the table is of another group")
        own = table.pages[table.own_from :]
        self.pool.share(own)
        self.pool.share(table.duplicates)
        other = PagedTable(table.pages[:], table.published, self.cache.repin(table.pin))
        other.own_from = table.own_from
        other.duplicates = table.duplicates[:]
        return other

    @override
    def cut(self, table: Table, pages: int) -> None:
        if pages < table.published:
            raise ValueError("published pages cannot be cut off")
        gone = table.pages[pages:]
        del table.pages[pages:]
        self.drop(gone)

    @override
    def leave_end(self, table: Table, key: TokenKey, computed: int) -> bool:
        if not isinstance(table, PagedTable):
            raise TypeError("the table is of another group")
        index, tokens = divmod(computed, self.page_size)
        if not tokens or index != table.published or not self.is_writable(table, index):
            return False
        if not self.cache.add_end(table.pin, key, tokens, table.pages[index]):
            return False
        table.pages.pop(index)
        self.owned -= 1
        return True

    @override
    def close(self, table: Table) -> None:
        if not isinstance(table, PagedTable):
            raise TypeError("the table is of another group")
        if len(table.pages) > table.own_from:
            self.drop(table.pages[table.own_from :])
        if table.duplicates:
            self.drop(table.duplicates)
        self.cache.unpin(table.pin)

    @property
    @override
    def evictable(self) -> int:
        return self.cache.evictable

    @property
    @override
    def pinned(self) -> int:
        return self.cache.pinned

    @override
    def evict(self, count: int) -> int:
        return self.cache.evict(count)

    @override
    def reset(self) -> int:
        return self.cache.reset()

    @override
    def set_victim_sink(self, sink: VictimSink) -> None:
        self.cache.victim_sink = sink

    @override
    def offer(self, table: Table, start: int) -> Offer:
        if not isinstance(table, PagedTable):
            raise TypeError("the table is of another group")
        pin = self.cache.repin(table.pin)
        items = self.cache.pinned_keys(pin, start)
        keys, pages = [key for key, _ in items], [page for _, page in items]
        return Offer(keys, pages, lambda: self.cache.unpin(pin, is_use=False))

    @override
    def table_pages(self, table: Table) -> Iterator[int]:
        if isinstance(table, PagedTable):
            yield from table.pages[table.own_from :]
            yield from table.duplicates

    @override
    def cached_pages(self) -> Iterator[int]:
        return self.cache.all_pages()

    @override
    def check_cache(self) -> None:
        self.cache.check_integrity()
