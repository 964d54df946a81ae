"""Prefixes as chains of page identities: one dictionary entry for each page.

The identity of a page covers everything before it, so one look-up a page finds the prefix. The
tokens of each page are compared as well; since every page before it was compared too, two prompts
never share KV because their digests happen to agree.

Pages that were published together remember one another: where a prompt has reached one of them, the
others are compared as one piece of memory, and nothing that is known is digested again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from local_backend._typing import override
from local_backend.kvcache.base import Match, Pin, PrefixCache, Segment, require
from local_backend.kvcache.compare import common_pages, same_extras
from local_backend.kvcache.evict import Entry, Policy
from local_backend.kvcache.keys import PageExtra, TokenKey, page_key
from local_backend.kvcache.pages import PagePool, no_pages


class Run:
    """Pages that continue one another, from the first one on without a gap.

    Attributes:
        root: Identity of the namespace.
        start: Pages before it.
        blocks: Its pages; the last ones go first.
        pages: Where they are.
        data: Their tokens.
        extras: By page inside the run, what distinguishes it beyond its tokens.
    """

    __slots__ = ("blocks", "data", "extras", "pages", "root", "start")

    def __init__(self, root: bytes, start: int) -> None:
        self.root = root
        self.start = start
        self.blocks: list[Block] = []
        self.pages = no_pages()
        self.data = b""
        self.extras: Mapping[int, PageExtra] = {}

    def trim(self, step: int) -> None:
        """Forget what belonged to pages that are gone."""
        count = len(self.blocks)
        self.data = self.data[: count * step]
        if self.extras:
            self.extras = {page: extra for page, extra in self.extras.items() if page < count}


class Block(Entry):
    """One cached page.

    Attributes:
        key: Its identity.
        page: Where it is.
        parent: The page before it.
        children: How many pages continue it.
        index: Pages before it.
        run: What it is a part of.
    """

    __slots__ = ("children", "index", "key", "page", "parent", "run")

    def __init__(
        self, key: bytes, page: int, parent: Block | None, index: int, run: Run, stamp: int
    ) -> None:
        self.lock = self.hits = self.ticket = self.children = 0
        self.stamp = stamp
        self.key = key
        self.page = page
        self.parent = parent
        self.index = index
        self.run = run

    def data(self, step: int) -> bytes:
        """Its tokens, of which a page has so many bytes."""
        at = (self.index - self.run.start) * step
        return self.run.data[at : at + step]

    @property
    def extra(self) -> PageExtra | None:
        """What distinguishes it beyond its tokens."""
        extras = self.run.extras
        return extras.get(self.index - self.run.start) if extras else None


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
        step = self.page_bytes
        if block.parent is parent and block.data(step) == data and block.extra == extra:
            return block
        self.collisions += 1
        for twin in self._twins.get(key, ()):
            if twin.parent is parent and twin.data(step) == data and twin.extra == extra:
                return twin
        return None

    def _walk(
        self, parent: Block | None, key: TokenKey, first: int, last: int
    ) -> tuple[list[Block], array[int]]:
        """What follows a page in a prompt, from one of its pages up to another."""
        size, step, data = self.page_size, self.page_bytes, key.data
        extras = key.extras(size)
        found: list[Block] = []
        pages = no_pages()
        while first < last:
            at = first * step
            extra = extras.get(first) if extras else None
            before = key.root if parent is None else parent.key
            identity = key.identity(size, first, before)
            block = self._find(identity, parent, data[at : at + step], extra)
            if block is None:
                break
            run = block.run
            skip = first - run.start
            count = self._agreeing(run, skip, key, first, last)
            found += run.blocks[skip : skip + count]
            pages += run.pages[skip : skip + count]
            first += count
            parent = found[-1]
        return found, pages

    def _agreeing(self, run: Run, skip: int, key: TokenKey, first: int, last: int) -> int:
        """How many pages of a run, from one on, stand in a prompt."""
        step, data = self.page_bytes, key.data
        count = min(len(run.blocks) - skip, last - first)
        edge = run.data[skip * step : (skip + count) * step]
        if not data.startswith(edge, first * step):
            count = common_pages(data, first * step, edge, count, step)
        if run.extras or key.spans:
            theirs = {page - skip: extra for page, extra in run.extras.items()}
            count = same_extras(key.extras(self.page_size), first, theirs, count)
        return count

    @override
    def match(self, key: TokenKey, limit: int) -> Match:
        size = self.page_size
        found, pages = self._walk(None, key, 0, min(limit, len(key)) // size)
        # No page has more pins than the one before it, so the idle ones are the last.
        idle = len(found) - bisect_left(found, True, key=_is_idle)
        return Match(len(found) * size, pages, idle, key.root, found, 0, self._version)

    @override
    def pin(self, match: Match, *, tail: bool = False) -> Pin:
        self._require_fresh(match)
        blocks: list[Block] = match.place
        if blocks and blocks[-1].ticket:
            if self._learner is not None:
                self._learner.reused(blocks[-1], self._clock)
            self._queue.discard(blocks[-1])
        stamp = self._tick()
        for block in blocks:
            block.lock += 1
            block.stamp = stamp
            block.hits += 1
        self.evictable -= match.idle
        self.books.updates += len(blocks)
        self._version += 1
        return Pin(blocks[:], len(blocks), stamp)

    def _lock(self, blocks: Sequence[Block]) -> None:
        """Count one more pin on pages that continue one another."""
        for block in blocks:
            if not block.lock:
                self.evictable -= 1
                self._queue.discard(block)
            block.lock += 1
        self.books.updates += len(blocks)

    @override
    def follow(self, pin: Pin, key: TokenKey, limit: int) -> array[int]:
        self._require_live(pin)
        blocks: list[Block] = pin.place
        last = min(limit, len(key)) // self.page_size
        fresh, pages = self._walk(blocks[-1] if blocks else None, key, len(blocks), last)
        if fresh:
            pin.stamp = self._tick()
            self._lock(fresh)
            for block in fresh:
                block.hits += 1
            blocks += fresh
            pin.pages = len(blocks)
            for block in blocks:
                block.stamp = pin.stamp
            self._version += 1
        return pages

    @override
    def repin(self, pin: Pin) -> Pin:
        self._require_live(pin)
        self._lock(pin.place)
        self._version += 1
        return Pin(list(pin.place), pin.pages, pin.stamp)

    @override
    def extend(self, pin: Pin, key: TokenKey, pages: array[int]) -> int:
        self._require_live(pin)
        first, last = pin.pages, pin.pages + len(pages)
        if last * self.page_size > len(key):
            raise ValueError("more pages than the prompt has tokens for")
        blocks: list[Block] = pin.place
        there, _ = self._walk(blocks[-1] if blocks else None, key, first, last)
        self._lock(there)
        blocks += there
        known = len(there)
        if first + known < last:
            self._add(pin, key, first + known, pages[known:])
        pin.pages = last
        self._version += 1
        return known

    def _add(self, pin: Pin, key: TokenKey, first: int, pages: array[int]) -> None:
        """Publish pages that nobody published before; the pin protects them."""
        blocks: list[Block] = pin.place
        parent = blocks[-1] if blocks else None
        last, size, step = first + len(pages), self.page_size, self.page_bytes
        chain = key.identities(size, first, last, key.root if parent is None else parent.key)
        if self._learner is not None:
            self._learner.came(chain[0], self._clock)
        extras = key.extras(size)
        inside = {page: extras[page] for page in extras if first <= page < last} if extras else {}
        run = self._run_after(parent, key.root, first)
        run.data += key.data[first * step : last * step]
        run.pages += pages
        if inside:
            run.extras = {**run.extras, **{page - run.start: x for page, x in inside.items()}}
        stamp, index = pin.stamp, self._blocks
        for place, (identity, page) in enumerate(zip(chain, pages, strict=True), first):
            block = Block(identity, page, parent, place, run, stamp)
            block.lock = 1
            if parent is not None:
                parent.children += 1
            if index.setdefault(identity, block) is not block:
                self._twins.setdefault(identity, []).append(block)
            blocks.append(block)
            parent = block
        run.blocks += blocks[first:]
        self._cached += len(pages)
        self.books.updates += 2 * len(pages)

    def _run_after(self, parent: Block | None, root: bytes, first: int) -> Run:
        """Where new pages go: to what they continue, as far as nothing else does."""
        if parent is not None and not parent.children:
            return parent.run
        return Run(root, first)

    @override
    def add_end(self, pin: Pin, key: TokenKey, tokens: int, page: int) -> bool:
        return False

    @override
    def unpin(self, pin: Pin, *, is_use: bool = True) -> None:
        self._require_live(pin)
        pin.is_live = False
        stamp = self._tick() if is_use else 0
        blocks: list[Block] = pin.place
        for block in blocks:
            block.lock -= 1
            if stamp:
                block.stamp = stamp
        idle = len(blocks) - bisect_left(blocks, True, key=_is_idle)
        self.evictable += idle
        if idle and not blocks[-1].children:
            self._queue.push(blocks[-1], blocks[-1].index, 1, self._clock)
        self.books.updates += len(blocks)
        self._version += 1

    @override
    def evict(self, count: int) -> int:
        freed = no_pages()
        victims: list[tuple[bytes, int]] = []
        queue, sink = self._queue, self.victim_sink
        while len(freed) < count:
            block = queue.first(self._clock)
            if not isinstance(block, Block):
                break
            queue.pop()
            chain = self._climb(block, count - len(freed), queue.earliest(self._clock))
            freed.extend([block.page for block in chain])
            if sink is not None:
                victims += [(block.key, block.page) for block in chain]
        return self._freed(freed, victims)

    def _climb(self, block: Block, count: int, limit: int) -> list[Block]:
        """Remove the end of a chain, and what becomes an end by that, up to so many pages.

        Args:
            block: No candidate any more.
            count: Most pages to remove.
            limit: What was last used before it would be the first candidate as an end.

        Returns:
            The pages, the end first. What is left is a candidate, if it is an idle end.
        """
        learner, index, twins = self._learner, self._blocks, self._twins
        gone: list[Block] = []
        run = block.run
        while True:
            gone.append(block)
            if block.run is not run:
                run.trim(self.page_bytes)
                run = block.run
            run.blocks.pop()
            run.pages.pop()
            if twins:
                self._unlist(block)
            else:
                del index[block.key]
            if learner is not None:
                learner.gone(block.key, block)
            parent = block.parent
            if parent is None:
                break
            parent.children = others = parent.children - 1
            if others or parent.lock:
                break
            if parent.stamp >= limit or len(gone) == count:
                self._queue.push(parent, parent.index, 1, self._clock)
                break
            block = parent
        run.trim(self.page_bytes)
        return gone

    def _freed(self, freed: array[int], victims: list[tuple[bytes, int]]) -> int:
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

    def _unlist(self, block: Block) -> None:
        """Take a page out of the index, where identities may be shared."""
        twins = self._twins.get(block.key)
        if twins is None:
            del self._blocks[block.key]
            return
        if self._blocks[block.key] is block:
            self._blocks[block.key] = twins.pop()
        else:
            twins.remove(block)
        if not twins:
            del self._twins[block.key]

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
            data, root = block.data(self.page_bytes), block.run.root
            found.append(Segment(parent, root, data, page, block.stamp, block.hits, extras))
        return found

    @override
    def adopt(self, segments: Sequence[Segment]) -> None:
        self._require_empty()
        step = self.page_bytes
        ends: list[Block] = []
        parts: dict[int, tuple[Run, list[bytes]]] = {}
        for segment in segments:
            parent = ends[segment.parent] if segment.parent >= 0 else None
            first = 0 if parent is None else parent.index + 1
            run = self._run_after(parent, segment.root, first)
            parts.setdefault(id(run), (run, []))[1].append(segment.data)
            before = len(run.blocks)
            moved = {before + page: extra for page, extra in segment.extras.items()}
            run.extras = {**run.extras, **moved}
            run.pages += segment.pages
            for place, page in enumerate(segment.pages):
                data = segment.data[place * step : (place + 1) * step]
                identity = segment.root if parent is None else parent.key
                identity = page_key(identity, data, segment.extras.get(place))
                block = Block(identity, page, parent, first + place, run, segment.stamp)
                block.hits = segment.hits
                if parent is not None:
                    parent.children += 1
                if self._blocks.setdefault(identity, block) is not block:
                    self._twins.setdefault(identity, []).append(block)
                run.blocks.append(block)
                parent = block
            if parent is not None:
                ends.append(parent)
            self._clock = max(self._clock, segment.stamp)
            self._cached += len(segment.pages)
            self.evictable += len(segment.pages)
        for run, data_of in parts.values():
            run.data = b"".join(data_of)
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
        step = self.page_bytes
        for block in blocks:
            require(block.children == children.get(id(block), 0), "continuations are miscounted")
            run, place = block.run, block.index - block.run.start
            is_there = 0 <= place < len(run.blocks) and run.blocks[place] is block
            require(is_there and run.pages[place] == block.page, "a run lacks a page of it")
            before = run.blocks[place - 1] if place else block.parent
            require(before is block.parent, "a run has a gap")
            require(len(run.blocks) == len(run.pages), "a run has not as many pages as entries")
            require(len(run.data) == len(run.blocks) * step, "a page is not full")
            is_listed = block is self._blocks.get(block.key) or block in self._twins[block.key]
            require(is_listed, "a page is filed wrongly")


def _is_idle(block: Block) -> bool:
    return not block.lock
