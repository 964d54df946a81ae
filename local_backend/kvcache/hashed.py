"""Prefixes as chains of page identities: one dictionary entry for each page.

The identity of a page covers everything before it, so one look-up a page finds the prefix. The
tokens of each page are compared as well; since every page before it was compared too, two prompts
never share KV because their digests happen to agree.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from local_backend._typing import override
from local_backend.kvcache.base import Match, Pin, PrefixCache, Segment, require
from local_backend.kvcache.evict import Entry, Policy
from local_backend.kvcache.keys import TOKEN_BYTES, PageExtra, TokenKey, page_key
from local_backend.kvcache.pages import PagePool, no_pages

# Identities are computed in runs, so that a prompt that misses at once costs one run only.
_RUN = 32


class Block(Entry):
    """One cached page.

    Attributes:
        key: Its identity.
        data: Its own tokens.
        extra: What distinguishes it beyond them.
        page: Where it is.
        parent: The page before it.
        children: How many pages continue it.
        index: Pages before it.
        root: Identity of the namespace.
    """

    __slots__ = ("children", "data", "extra", "index", "key", "page", "parent", "root")

    def __init__(
        self,
        key: bytes,
        data: bytes,
        extra: PageExtra | None,
        page: int,
        parent: Block | None,
        stamp: int,
        root: bytes,
    ) -> None:
        super().__init__(stamp)
        self.root = root
        self.key = key
        self.data = data
        self.extra = extra
        self.page = page
        self.parent = parent
        self.children = 0
        self.index: int = 0 if parent is None else parent.index + 1


class HashCache(PrefixCache):
    """An index of pages by chained identity."""

    name = "hash"
    can_tails = False

    def __init__(
        self, pool: PagePool, page_size: int, policy: Policy, *, tails: bool = False
    ) -> None:
        super().__init__(pool, page_size, policy, tails=tails)
        self._blocks: dict[bytes, Block] = {}
        # Further pages with an identity that is taken; with a sound digest there are none.
        self._twins: dict[bytes, list[Block]] = {}
        self.collisions = 0

    @property
    @override
    def entries(self) -> int:
        return self._cached

    def _find(
        self, key: bytes, parent: Block | None, data: bytes, extra: PageExtra | None
    ) -> Block | None:
        """The page of an identity; its tokens and what it continues must agree as well."""
        block = self._blocks.get(key)
        if block is None:
            return None
        if block.parent is parent and block.data == data and block.extra == extra:
            return block
        self.collisions += 1
        for twin in self._twins.get(key, ()):
            if twin.parent is parent and twin.data == data and twin.extra == extra:
                return twin
        return None

    @override
    def match(self, key: TokenKey, limit: int) -> Match:
        size, step = self.page_size, self.page_bytes
        count = min(limit, len(key)) // size
        data, extras = key.data, key.extras(size)
        found: list[Block] = []
        parent: Block | None = None
        chain: list[bytes] = []
        at = 0
        for index in range(count):
            if index == len(chain):
                chain = key.chain(size, min(count, index + _RUN))
            extra = extras.get(index) if extras else None
            block = self._find(chain[index], parent, data[at : at + step], extra)
            if block is None:
                break
            found.append(block)
            parent = block
            at += step
        pages = array("i", [block.page for block in found])
        idle = sum([not block.lock for block in found])
        return Match(len(found) * size, pages, idle, key.root, found, 0, self._version)

    @override
    def pin(self, match: Match, *, tail: bool = False) -> Pin:
        self._require_fresh(match)
        blocks: list[Block] = match.place
        if self._learner is not None and blocks and blocks[-1].ticket:
            self._learner.reused(blocks[-1], self._clock)
        stamp = self._tick()
        for block in blocks:
            if not block.lock:
                self.evictable -= 1
                if block.ticket:
                    self._queue.discard(block)
            block.lock += 1
            block.stamp = stamp
            block.hits += 1
        self.books.updates += len(blocks)
        self._version += 1
        return Pin(list(blocks), len(blocks), stamp)

    def _lock(self, block: Block) -> None:
        if block.lock == 0:
            self.evictable -= 1
            self._queue.discard(block)
        block.lock += 1
        self.books.updates += 1

    @override
    def follow(self, pin: Pin, key: TokenKey, limit: int) -> array[int]:
        self._require_live(pin)
        blocks: list[Block] = pin.place
        found: list[Block] = self.match(key, limit).place
        fresh = found[len(blocks) :]
        if fresh:
            pin.stamp = self._tick()
            for block in fresh:
                self._lock(block)
                block.hits += 1
            blocks.extend(fresh)
            pin.pages = len(blocks)
            for block in blocks:
                block.stamp = pin.stamp
            self._version += 1
        return array("i", [block.page for block in fresh])

    @override
    def repin(self, pin: Pin) -> Pin:
        self._require_live(pin)
        for block in pin.place:
            self._lock(block)
        self._version += 1
        return Pin(list(pin.place), pin.pages, pin.stamp)

    @override
    def extend(self, pin: Pin, key: TokenKey, pages: array[int]) -> int:
        self._require_live(pin)
        size, step = self.page_size, self.page_bytes
        first, last = pin.pages, pin.pages + len(pages)
        if last * size > len(key):
            raise ValueError("more pages than the prompt has tokens for")
        chain, extras = key.chain(size, last), key.extras(size)
        blocks: list[Block] = pin.place
        parent = blocks[-1] if blocks else None
        known = 0
        for index in range(first, last):
            data = key.data[index * step : (index + 1) * step]
            extra = extras.get(index)
            block = self._find(chain[index], parent, data, extra)
            if block is None:
                if self._learner is not None and known == index - first:
                    self._learner.came(chain[index], self._clock)
                page = pages[index - first]
                block = Block(chain[index], data, extra, page, parent, pin.stamp, key.root)
                self._add(block)
            else:
                known += 1
            self._lock(block)
            blocks.append(block)
            parent = block
        pin.pages = last
        self._version += 1
        return known

    @override
    def add_end(self, pin: Pin, key: TokenKey, tokens: int, page: int) -> bool:
        return False

    def _add(self, block: Block) -> None:
        if block.key in self._blocks:
            self._twins.setdefault(block.key, []).append(block)
        else:
            self._blocks[block.key] = block
        if block.parent is not None:
            block.parent.children += 1
        self._cached += 1
        self.evictable += 1
        self.books.updates += 1

    @override
    def unpin(self, pin: Pin, *, is_use: bool = True) -> None:
        self._require_live(pin)
        pin.is_live = False
        stamp = self._tick() if is_use else 0
        for block in pin.place:
            block.lock -= 1
            block.stamp = stamp or block.stamp
            if block.lock == 0:
                self.evictable += 1
                if not block.children:
                    self._queue.push(block, block.index, 1, self._clock)
        self.books.updates += len(pin.place)
        self._version += 1

    @override
    def evict(self, count: int) -> int:
        freed = no_pages()
        victims: list[tuple[bytes, int]] = []
        while len(freed) < count:
            block = self._queue.first(self._clock)
            if not isinstance(block, Block):
                break
            self._queue.pop()
            self._forget(block)
            freed.append(block.page)
            victims.append((block.key, block.page))
        total = len(freed)
        self._cached -= total
        self.evictable -= total
        self.books.updates += total
        self.books.evicted_pages += total
        if total:
            self._version += 1
            if self.victim_sink is not None:
                self.victim_sink(victims)
            self.pool.drop(freed)
        return total

    def _forget(self, block: Block) -> None:
        if self._learner is not None:
            self._learner.gone(block.key, block)
        twins = self._twins.get(block.key)
        if twins is None:
            del self._blocks[block.key]
        else:
            if self._blocks[block.key] is block:
                self._blocks[block.key] = twins.pop()
            else:
                twins.remove(block)
            if not twins:
                del self._twins[block.key]
        parent = block.parent
        if parent is not None:
            parent.children -= 1
            if not parent.children and parent.lock == 0:
                self._queue.push(parent, parent.index, 1, self._clock)

    @override
    def pinned_keys(self, pin: Pin, start: int) -> list[tuple[bytes, int]]:
        self._require_live(pin)
        return [(block.key, block.page) for block in pin.place[start:]]

    def blocks(self) -> list[Block]:
        """All cached pages, heads of chains first."""
        found = [*self._blocks.values(), *(b for twins in self._twins.values() for b in twins)]
        return sorted(found, key=lambda block: block.index)

    @override
    def all_pages(self) -> Iterator[int]:
        return (block.page for block in self.blocks())

    @override
    def export(self) -> list[Segment]:
        places: dict[int, int] = {}
        found: list[Segment] = []
        for block in self.blocks():
            parent = -1 if block.parent is None else places[id(block.parent)]
            places[id(block)] = len(found)
            extras = {} if block.extra is None else {0: block.extra}
            page = array("i", [block.page])
            found.append(
                Segment(parent, block.root, block.data, page, block.stamp, block.hits, extras)
            )
        return found

    @override
    def adopt(self, segments: Sequence[Segment]) -> None:
        self._require_empty()
        step = self.page_bytes
        ends: list[Block] = []
        for segment in segments:
            parent = ends[segment.parent] if segment.parent >= 0 else None
            for index, page in enumerate(segment.pages):
                data = segment.data[index * step : (index + 1) * step]
                extra = segment.extras.get(index)
                before = segment.root if parent is None else parent.key
                key = page_key(before, data, extra)
                parent = Block(key, data, extra, page, parent, segment.stamp, segment.root)
                self._add(parent)
                parent.hits = segment.hits
            if parent is not None:
                ends.append(parent)
            self._clock = max(self._clock, segment.stamp)
        for block in self.blocks():
            if not block.children:
                self._queue.push(block, block.index, 1, self._clock)
        self._version += 1

    @override
    def check_integrity(self) -> None:
        blocks = self.blocks()
        require(len(blocks) == self._cached, "the number of pages is wrong")
        idle = [block for block in blocks if block.lock == 0]
        require(len(idle) == self.evictable, "evictable pages are miscounted")
        leaves = sum(1 for block in idle if not block.children)
        require(leaves == len(self._queue), "candidates are miscounted")
        children: dict[int, int] = {}
        for block in blocks:
            require(block.lock >= 0, "a page was unpinned too often")
            require(bool(block.ticket) == (block.lock == 0 and not block.children), "wrong queue")
            if block.parent is not None:
                children[id(block.parent)] = children.get(id(block.parent), 0) + 1
                require(block.lock <= block.parent.lock, "a page is pinned, the one before is not")
                require(block.index == block.parent.index + 1, "a page has the wrong place")
        for block in blocks:
            require(block.children == children.get(id(block), 0), "continuations are miscounted")
            require(len(block.data) == self.page_size * TOKEN_BYTES, "a page is not full")
