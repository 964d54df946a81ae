"""Prefixes in a radix tree: one node for a stretch of pages that no prompt has left so far.

A node is split where a match that is used ends. Its edge is compared as memory, so that a prompt
of 8,000 tokens costs a few comparisons. With ``page_size=1`` reuse is exact to the token; with
larger pages the part of a page that still agrees is reported as the match's tail, to be copied.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from local_backend._typing import override
from local_backend.kvcache.base import Match, Pin, PrefixCache, Segment
from local_backend.kvcache.compare import (
    branch_key,
    common_pages,
    common_tokens,
    same_extras,
    within,
)
from local_backend.kvcache.evict import Policy
from local_backend.kvcache.keys import TOKEN_BYTES, PageExtra, TokenKey
from local_backend.kvcache.pages import PagePool, no_pages
from local_backend.kvcache.radix_check import check_tree
from local_backend.kvcache.radix_ends import Ends, near
from local_backend.kvcache.radix_node import NO_EXTRAS, Node
from local_backend.kvcache.radix_segments import segments_of

Extras = Mapping[int, PageExtra]


class RadixCache(PrefixCache):
    """A radix tree of pages for each namespace."""

    name = "radix"

    def __init__(
        self, pool: PagePool, page_size: int, policy: Policy, *, tails: bool = False
    ) -> None:
        super().__init__(pool, page_size, policy, tails=tails)
        self._roots: dict[bytes, Node] = {}
        self._nodes = 0
        self._ends = Ends(self.page_bytes)

    @property
    @override
    def entries(self) -> int:
        return self._nodes

    # Finding.

    @override
    def match(self, key: TokenKey, limit: int) -> Match:
        step = self.page_bytes
        data = key.data
        stop = min(limit * TOKEN_BYTES, len(data)) // step * step
        pages = no_pages()
        node = self._roots.get(key.root)
        if node is None:
            return Match(0, pages, 0, key.root, None, 0, self._version)
        extras = key.extras(self.page_size) if key.spans else NO_EXTRAS
        at = idle = offset = 0
        while at < stop:
            first = data[at : at + step]
            if extras:
                first = branch_key(first, extras.get(at // step))
            child = node.children.get(first)
            if child is None:
                break
            node, edge, held = child, child.data, child.pages
            after = at + len(edge)
            if after <= stop and not (extras or child.extras) and data.startswith(edge, at):
                offset = len(held)
                pages.extend(held)
                at = after
                if child.lock == 0:
                    idle += offset
                continue
            offset = self._agreeing(child, data, at, stop, extras)
            pages.extend(held[:offset])
            at += offset * step
            if child.lock == 0:
                idle += offset
            if offset < len(held):
                break
        found = at // step * self.page_size
        match = Match(found, pages, idle, key.root, node, offset, self._version)
        if self.tails and limit > found:
            self._add_tail(match, key, limit - found, extras)
        return match

    def _agreeing(self, child: Node, data: bytes, at: int, stop: int, extras: Extras) -> int:
        """How many whole pages of a node stand in the prompt."""
        edge = child.data
        if at + len(edge) <= stop and data.startswith(edge, at):
            found = len(child.pages)
        else:
            step = self.page_bytes
            found = common_pages(data, at, edge, min(stop - at, len(edge)) // step, step)
        if extras or child.extras:
            found = same_extras(extras, at // self.page_bytes, child.extras, found)
        return found

    def _add_tail(self, match: Match, key: TokenKey, room: int, extras: Extras) -> None:
        """Look for the page behind the match that has the longest common beginning."""
        step = self.page_bytes
        at = match.length * TOKEN_BYTES
        ours, extra = key.data[at : at + step], extras.get(at // step)
        node: Node = match.place
        if match.offset < len(node.pages):
            candidates = [(node, match.offset)]
        else:
            wanted = branch_key(ours, extra)
            order, first = node.order, wanted[:TOKEN_BYTES]
            place = bisect_left(order, wanted)
            beside = order[max(place - 1, 0) : place + 1]
            if not [name for name in beside if name.startswith(first)]:
                return
            found = near(node, wanted)
            candidates = [(child, 0) for name, child in found if name.startswith(first)]
        for child, offset in candidates:
            theirs = child.data[offset * step : (offset + 1) * step]
            count = min(common_tokens(ours, extra, theirs, child.extras.get(offset)), room)
            if count > match.tail_tokens:
                pages = match.pages + child.pages[offset : offset + 1]
                idle = match.idle + (child.lock == 0)
                length = match.length + self.page_size
                match.tail_tokens = count
                match.tail = Match(
                    length, pages, idle, match.root, child, offset + 1, self._version
                )

    # Protecting.

    @override
    def pin(self, match: Match, *, tail: bool = False) -> Pin:
        if match.version != self._version:
            self._require_fresh(match)
        node: Node | None = match.place
        if node is None:
            node = self._roots[match.root] = Node.start_of(match.root)
        else:
            if node.ticket and self._learner is not None:
                self._learner.reused(node, self._clock)
            if match.offset < len(node.pages):
                node = self._split(node, match.offset)
        pin = self._pin_node(node, match.length)
        if tail and match.tail is not None:
            child: Node = match.tail.place
            offset = match.tail.offset
            if child is match.place:  # the split above has moved its beginning
                offset -= match.offset
            if offset < len(child.pages):
                child = self._split(child, offset)
            self._ends.use(child)
            pin.tail = self._pin_node(child, match.tail.length)
        self._version += 1
        return pin

    def _pin_node(self, node: Node, length: int) -> Pin:
        self._clock = stamp = self._clock + 1
        walk: Node | None = node
        updates = 0
        while walk is not None:
            if walk.lock == 0:
                self.evictable -= len(walk.pages)
                if walk.ticket:
                    self._queue.discard(walk)
            walk.lock += 1
            walk.stamp = stamp
            walk.hits += 1
            updates += 1
            walk = walk.parent
        self.books.updates += updates
        return Pin(node, length // self.page_size, stamp)

    @override
    def follow(self, pin: Pin, key: TokenKey, limit: int) -> array[int]:
        self._require_live(pin)
        pages = no_pages()
        node = pin.place
        step = self.page_bytes
        stop = min(limit * TOKEN_BYTES, len(key.data)) // step * step
        node = self._descend(node, key, pin.pages * step, stop, pages)
        if pages:
            pin.place = node
            pin.pages += len(pages)
            pin.stamp = self._tick()
            walk: Node | None = node
            fresh = len(pages)
            while walk is not None:
                walk.stamp = pin.stamp
                walk.hits += fresh > 0
                fresh -= len(walk.pages)
                walk = walk.parent
            self._version += 1
        return pages

    def _descend(self, node: Node, key: TokenKey, at: int, stop: int, pages: array[int]) -> Node:
        """Lock what follows a node in the prompt, collect its pages, and return where it ends."""
        step = self.page_bytes
        data = key.data
        extras = key.extras(self.page_size)
        while at < stop:
            first = data[at : at + step]
            if extras:
                first = branch_key(first, extras.get(at // step))
            child = node.children.get(first)
            if child is None:
                break
            found = self._agreeing(child, data, at, stop, extras)
            if found < len(child.pages):
                child = self._split(child, found)
            if child.lock == 0:
                self.evictable -= found
                self._queue.discard(child)
            child.lock += 1
            self.books.updates += 1
            pages.extend(child.pages)
            node = child
            at += found * step
        return node

    @override
    def repin(self, pin: Pin) -> Pin:
        self._require_live(pin)
        walk: Node | None = pin.place
        while walk is not None:
            walk.lock += 1
            self.books.updates += 1
            walk = walk.parent
        self._version += 1
        return Pin(pin.place, pin.pages, pin.stamp)

    @override
    def unpin(self, pin: Pin, *, is_use: bool = True) -> None:
        if not pin.is_live:
            self._require_live(pin)
        pin.is_live = False
        stamp = 0
        if is_use:
            self._clock = stamp = self._clock + 1
        walk: Node | None = pin.place
        updates = 0
        while walk is not None:
            walk.lock = lock = walk.lock - 1
            if stamp:
                walk.stamp = stamp
            updates += 1
            if not lock:
                self.evictable += len(walk.pages)
                if not walk.children:
                    self._leave(walk)
            walk = walk.parent
        self.books.updates += updates
        self._version += 1

    def _leave(self, node: Node) -> None:
        """Make an idle node that nothing continues a candidate."""
        if node.parent is None:
            if not node.ends:
                self._roots.pop(node.name, None)
        elif len(node.data) < self.page_bytes:
            self._ends.leave(node)
        else:
            self._queue.push(node, node.start, len(node.pages), self._clock)

    def _split(self, node: Node, count: int) -> Node:
        """Cut a node behind its first pages. The node itself becomes the lower part."""
        if node.parent is None:  # pragma: no cover - such nodes hold no pages
            raise AssertionError("the start of a namespace cannot be split")
        upper = node.split(count, self.page_bytes, node.parent, is_sorted=self.tails)
        self._nodes += 1
        self.books.splits += 1
        self.books.updates += 2
        return upper

    # Adding.

    @override
    def extend(self, pin: Pin, key: TokenKey, pages: array[int]) -> int:
        if not pin.is_live:
            self._require_live(pin)
        step = self.page_bytes
        data = key.data
        at = pin.pages * step
        stop = at + len(pages) * step
        if stop > len(data):
            raise ValueError("more pages than the prompt has tokens for")
        node: Node = pin.place
        pin.pages += len(pages)
        self._version += 1
        known = 0
        if node.children:
            there = no_pages()
            node = self._descend(node, key, at, stop, there)
            if there:
                known = len(there)
                at += known * step
                pages = pages[known:]
        if at < stop:
            extras = key.extras(self.page_size) if key.spans else NO_EXTRAS
            node = self._add(node, pin, data[at:stop], pages, extras)
        pin.place = node
        return known

    def _add(self, node: Node, pin: Pin, data: bytes, pages: array[int], extras: Extras) -> Node:
        own = NO_EXTRAS
        if extras:
            first = node.start + len(node.pages)
            inside = range(first, first + len(pages))
            own = {page - first: extra for page, extra in extras.items() if page in inside}
        self._cached += len(pages)
        self.books.updates += 1
        if (
            node.lock == 1
            and node.hits == 0
            and node.stamp == pin.stamp
            and not (node.children or node.ends or own or node.extras)
            and node.parent is not None
        ):
            # Only this pin knows the node: a growing answer stays one stretch.
            node.data += data
            node.pages.extend(pages)
            return node
        first_page = data[: self.page_bytes]
        if self._learner is not None:
            self._learner.came(first_page, self._clock)
        name = branch_key(first_page, own.get(0)) if own else first_page
        child = Node(data, pages, node, pin.stamp, own, name)
        child.lock = 1
        if node.ends:
            self._drop(self._ends.covered(node, first_page, own.get(0)))
        node.put_child(child)
        if self.tails:
            node.sort_in(name)
        self._nodes += 1
        return child

    @override
    def add_end(self, pin: Pin, key: TokenKey, tokens: int, page: int) -> bool:
        self._require_live(pin)
        if not self.tails:
            return False
        at = pin.pages * self.page_bytes
        data = key.data[at : at + tokens * TOKEN_BYTES]
        extra = within(key.extras(self.page_size).get(pin.pages), tokens)
        covered = self._ends.add(pin.place, data, extra, page, self._clock + 1)
        if covered is None:
            return False
        self._tick()
        self._cached += 1
        self.evictable += 1
        self._drop(covered)
        self._version += 1
        return True

    def _drop(self, ends: Sequence[Node]) -> None:
        """Free pages that never became full and were taken out of the tree."""
        for end in ends:
            self.pool.drop(end.pages)
            parent = end.parent
            is_start = parent is not None and parent.parent is None
            if parent is not None and is_start and not (parent.lock or parent.children):
                self._leave(parent)
        self._cached -= len(ends)
        self.evictable -= len(ends)

    # Evicting.

    @override
    def evict(self, count: int) -> int:
        freed = no_pages()
        victims: list[tuple[bytes, int]] = []
        ends = self._ends.oldest(count) if self._ends.idle else ()
        if ends:
            self._drop(ends)
            count -= len(ends)
        sink, queue = self.victim_sink, self._queue
        while count > len(freed):
            node = queue.first(self._clock)
            if not isinstance(node, Node):
                break
            pages = node.pages
            kept = max(0, len(pages) - count + len(freed))
            if sink is not None:
                items = list(zip(node.identities(self.page_bytes), pages, strict=True))
                victims.extend(reversed(items[kept:]))
            if kept:
                freed.extend(pages[kept:])
                node.trim(kept, self.page_bytes)
            else:
                freed += pages
                queue.pop()
                self._remove(node)
            self.books.updates += 1
        total = len(freed)
        self.evictable -= total
        self._cached -= total
        self.books.evicted_pages += total + len(ends)
        self._version += 1
        if total:
            if sink is not None:
                sink(victims)
            self.pool.drop(freed)
        return total + len(ends)

    def _remove(self, node: Node) -> None:
        self._nodes -= 1
        parent = node.parent
        if parent is None:  # pragma: no cover - such nodes are no candidates
            raise AssertionError("the start of a namespace cannot be evicted")
        if self._learner is not None:
            self._learner.gone(node.data[: self.page_bytes], node)
        parent.take_child(node)
        if self.tails:
            parent.sort_out(node.name)
        if not (parent.lock or parent.children):
            self._leave(parent)

    # Identities, snapshots, checks.

    @override
    def pinned_keys(self, pin: Pin, start: int) -> list[tuple[bytes, int]]:
        self._require_live(pin)
        node: Node = pin.place
        parts = []
        while node.parent is not None and node.start + len(node.pages) > start:
            skip = max(0, start - node.start)
            chain = node.identities(self.page_bytes)
            parts.append(list(zip(chain[skip:], node.pages[skip:], strict=True)))
            node = node.parent
        return [item for part in reversed(parts) for item in part]

    def nodes(self) -> Iterator[Node]:
        """All nodes, parents first, with the starts of namespaces."""
        waiting = list(reversed(self._roots.values()))
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(list(node.children.values())))

    @override
    def all_pages(self) -> Iterator[int]:
        for node in self.nodes():
            yield from node.pages
            for end in node.ends.values():
                yield from end.pages

    @override
    def export(self) -> list[Segment]:
        return segments_of(self.nodes())

    @override
    def adopt(self, segments: Sequence[Segment]) -> None:
        self._require_empty()
        nodes: list[Node] = []
        for segment in segments:
            if segment.parent >= 0:
                parent = nodes[segment.parent]
            elif segment.root in self._roots:
                parent = self._roots[segment.root]
            else:
                parent = self._roots[segment.root] = Node.start_of(segment.root)
            extras = dict(segment.extras)
            node = Node(segment.data, segment.pages, parent, segment.stamp, extras, b"")
            node.name = node.first_key(self.page_bytes)
            node.hits = segment.hits
            self._clock = max(self._clock, segment.stamp)
            parent.put_child(node)
            if self.tails:
                parent.sort_in(node.name)
            self._nodes += 1
            nodes.append(node)
            self._cached += len(node.pages)
        self.evictable = self._cached
        for node in nodes:
            if not node.children:
                self._leave(node)
        self._version += 1

    @override
    def check_integrity(self) -> None:
        check_tree(
            list(self.nodes()),
            self.page_bytes,
            self._nodes,
            self._cached,
            self.evictable,
            len(self._queue),
            len(self._ends.idle) if self.tails else None,
        )
