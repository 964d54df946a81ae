"""The plainest possible prefix cache: a list of pages, each with its whole prefix.

Every look-up reads the list. It is here to be obviously right, as the oracle of the other two.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from local_backend._typing import override
from local_backend.kvcache.base import Match, Pin, PrefixCache, Segment, require
from local_backend.kvcache.compare import branch_key, within
from local_backend.kvcache.evict import Entry, Policy
from local_backend.kvcache.keys import TOKEN_BYTES, PageExtra, TokenKey, page_key
from local_backend.kvcache.pages import PagePool, no_pages

# All that a page's KV depends on: namespace, tokens up to its end, extras up to its end.
Prefix = tuple[bytes, bytes, tuple[PageExtra | None, ...]]


class Record(Entry):
    """One cached page."""

    __slots__ = ("page", "prefix")

    def __init__(self, prefix: Prefix, page: int, stamp: int) -> None:
        super().__init__(stamp)
        self.prefix = prefix
        self.page = page


class NaiveCache(PrefixCache):
    """A list of pages."""

    name = "naive"

    def __init__(
        self, pool: PagePool, page_size: int, policy: Policy, *, tails: bool = False
    ) -> None:
        if not policy.is_ranked:
            raise ValueError(f"the naive cache knows no order {policy.name!r}")
        super().__init__(pool, page_size, policy, tails=tails)
        self.records: list[Record] = []
        self.ends: list[Record] = []

    @property
    @override
    def entries(self) -> int:
        return self._cached

    def _prefix(self, key: TokenKey, index: int) -> Prefix:
        extras = key.extras(self.page_size)
        seen = tuple(extras.get(page) for page in range(index + 1))
        return key.root, key.data[: (index + 1) * self.page_bytes], seen

    def _find(self, prefix: Prefix) -> Record | None:
        for record in self.records:
            if record.prefix == prefix:
                return record
        return None

    @override
    def match(self, key: TokenKey, limit: int) -> Match:
        found: list[Record] = []
        for index in range(min(limit, len(key)) // self.page_size):
            record = self._find(self._prefix(key, index))
            if record is None:
                break
            found.append(record)
        match = self._match(key, found)
        if self.tails and limit > match.length:
            count, record = self._best_tail(key, len(found), limit - match.length)
            if record is not None:
                match.tail_tokens = count
                match.tail = self._match(key, [*found, record])
        return match

    def _best_tail(self, key: TokenKey, index: int, room: int) -> tuple[int, Record | None]:
        """The page with the longest common beginning; among equals the nearest before ours."""
        every = [*self.records, *self.ends]
        counts = [min(self._agreeing(record, key, index), room) for record in every]
        most = max(counts, default=0)
        if not most:
            return 0, None
        step = self.page_bytes
        begin = index * step
        wanted = branch_key(key.data[begin : begin + step], key.extras(self.page_size).get(index))
        filed = sorted(
            (branch_key(record.prefix[1][begin:], record.prefix[2][-1]), place)
            for place, (record, count) in enumerate(zip(every, counts, strict=True))
            if count == most
        )
        before = [place for name, place in filed if name < wanted]
        return most, every[before[-1] if before else filed[0][1]]

    def _match(self, key: TokenKey, found: list[Record]) -> Match:
        idle = sum(1 for record in found if record.lock == 0)
        pages = array("i", [record.page for record in found])
        length = len(found) * self.page_size
        return Match(length, pages, idle, key.root, found, 0, self._version)

    def _agreeing(self, record: Record, key: TokenKey, index: int) -> int:
        """How many tokens of page ``index`` agree, if the record is such a page of our prefix."""
        root, data, seen = record.prefix
        begin = index * self.page_bytes
        ours = key.extras(self.page_size)
        same_before = tuple(ours.get(page) for page in range(index)) == seen[:-1]
        if root != key.root or data[:begin] != key.data[:begin] or not same_before:
            return 0
        if not begin < len(data) <= begin + self.page_bytes:
            return 0
        extras = [extra for extra in (ours.get(index), seen[-1]) if extra is not None]
        room = self.page_size
        if ours.get(index) != seen[-1]:
            room = min(extra[1] for extra in extras)
        count = 0
        while count < room:
            at = begin + count * TOKEN_BYTES
            token = key.data[at : at + TOKEN_BYTES]
            if len(token) < TOKEN_BYTES or token != data[at : at + TOKEN_BYTES]:
                break
            count += 1
        return count

    @override
    def pin(self, match: Match, *, tail: bool = False) -> Pin:
        self._require_fresh(match)
        pin = self._pin(match.place)
        if tail and match.tail is not None:
            pin.tail = self._pin(match.tail.place)
        self._version += 1
        return pin

    def _pin(self, records: list[Record]) -> Pin:
        stamp = self._tick()
        for record in records:
            self._lock(record)
            record.stamp = stamp
            record.hits += 1
        return Pin(list(records), len(records), stamp)

    def _lock(self, record: Record) -> None:
        self.evictable -= record.lock == 0
        record.lock += 1
        self.books.updates += 1

    @override
    def follow(self, pin: Pin, key: TokenKey, limit: int) -> array[int]:
        self._require_live(pin)
        records: list[Record] = pin.place
        found: list[Record] = self.match(key, limit).place
        fresh = found[len(records) :]
        if fresh:
            pin.stamp = self._tick()
            for record in fresh:
                self._lock(record)
                record.hits += 1
            records.extend(fresh)
            pin.pages = len(records)
            for record in records:
                record.stamp = pin.stamp
            self._version += 1
        return array("i", [record.page for record in fresh])

    @override
    def repin(self, pin: Pin) -> Pin:
        self._require_live(pin)
        for record in pin.place:
            self._lock(record)
        self._version += 1
        return Pin(list(pin.place), pin.pages, pin.stamp)

    @override
    def extend(self, pin: Pin, key: TokenKey, pages: array[int]) -> int:
        self._require_live(pin)
        if (pin.pages + len(pages)) * self.page_size > len(key):
            raise ValueError("more pages than the prompt has tokens for")
        known = 0
        for page in pages:
            prefix = self._prefix(key, pin.pages)
            record = self._find(prefix)
            if record is None:
                record = Record(prefix, page, pin.stamp)
                self.records.append(record)
                self._cached += 1
                self.evictable += 1
                self._drop_covered(prefix)
            else:
                known += 1
            self._lock(record)
            pin.place.append(record)
            pin.pages += 1
        self._version += 1
        return known

    @override
    def add_end(self, pin: Pin, key: TokenKey, tokens: int, page: int) -> bool:
        self._require_live(pin)
        if not self.tails:
            return False
        begin = pin.pages * self.page_bytes
        root, data, seen = self._prefix(key, pin.pages)
        extras = (*seen[:-1], within(seen[-1], tokens))
        prefix = (root, data[: begin + tokens * TOKEN_BYTES], extras)
        cut = TokenKey(key.root, prefix[1], key.spans)
        if self._best_tail(cut, pin.pages, tokens)[0] == tokens:
            return False
        self._drop_covered(prefix)
        self.ends.append(Record(prefix, page, self._tick()))
        self._cached += 1
        self.evictable += 1
        self._version += 1
        return True

    def _drop_covered(self, prefix: Prefix) -> None:
        """Drop idle ends that are the beginning of a page which comes in their place."""
        root, data, seen = prefix
        for end in list(self.ends):
            key, theirs, extras = end.prefix
            extra = within(seen[-1], len(theirs) % self.page_bytes // TOKEN_BYTES)
            if (
                end.lock == 0
                and key == root
                and data.startswith(theirs)
                and (len(theirs) - 1) // self.page_bytes == (len(data) - 1) // self.page_bytes
                and extras == (*seen[:-1], extra)
            ):
                self._drop_end(end)

    def _drop_end(self, end: Record) -> None:
        self.ends.remove(end)
        self._cached -= 1
        self.evictable -= 1
        self.pool.drop(array("i", [end.page]))

    @override
    def unpin(self, pin: Pin, *, is_use: bool = True) -> None:
        self._require_live(pin)
        pin.is_live = False
        stamp = self._tick() if is_use else 0
        for record in pin.place:
            record.lock -= 1
            record.stamp = stamp or record.stamp
            self.evictable += record.lock == 0
            self.books.updates += 1
        self._version += 1

    def _is_end(self, record: Record) -> bool:
        """Whether no cached page continues it."""
        root, data, seen = record.prefix
        return not any(
            other.prefix[0] == root
            and len(other.prefix[1]) > len(data)
            and other.prefix[1].startswith(data)
            and other.prefix[2][: len(seen)] == seen
            for other in self.records
        )

    @override
    def evict(self, count: int) -> int:
        freed = no_pages()
        victims: list[tuple[bytes, int]] = []
        policy = self._queue.policy
        idle = sorted((r for r in self.ends if r.lock == 0), key=lambda record: record.stamp)
        for end in idle[:count]:
            self._drop_end(end)
        gone = min(count, len(idle))
        count -= gone
        while len(freed) < count:
            ends = [r for r in self.records if r.lock == 0 and self._is_end(r)]
            if not ends:
                break
            ranks = [policy.rank(record, len(record.prefix[2]) - 1, 1) for record in ends]
            victim = ends[ranks.index(min(ranks))]
            victims.append((self._identity(victim), victim.page))
            self.records.remove(victim)
            freed.append(victim.page)
        self._cached -= len(freed)
        self.evictable -= len(freed)
        self.books.evicted_pages += len(freed) + gone
        self._version += bool(freed) or bool(gone)
        if victims and self.victim_sink is not None:
            self.victim_sink(victims)
        self.pool.drop(freed)
        return len(freed) + gone

    def _identity(self, record: Record) -> bytes:
        key, data, seen = record.prefix
        step = self.page_bytes
        for index, extra in enumerate(seen):
            key = page_key(key, data[index * step : (index + 1) * step], extra)
        return key

    @override
    def pinned_keys(self, pin: Pin, start: int) -> list[tuple[bytes, int]]:
        self._require_live(pin)
        return [(self._identity(record), record.page) for record in pin.place[start:]]

    @override
    def all_pages(self) -> Iterator[int]:
        return (record.page for record in [*self.records, *self.ends])

    @override
    def export(self) -> list[Segment]:
        places: dict[Prefix, int] = {}
        found: list[Segment] = []
        for record in sorted(self.records, key=lambda record: len(record.prefix[1])):
            root, data, seen = record.prefix
            before = (root, data[: -self.page_bytes], seen[:-1])
            places[record.prefix] = len(found)
            extras = {} if seen[-1] is None else {0: seen[-1]}
            own = data[-self.page_bytes :]
            page = array("i", [record.page])
            parent = places.get(before, -1)
            found.append(Segment(parent, root, own, page, record.stamp, record.hits, extras))
        return found

    @override
    def adopt(self, segments: Sequence[Segment]) -> None:
        self._require_empty()
        step = self.page_bytes
        ends: list[Prefix] = []
        for segment in segments:
            prefix = ends[segment.parent] if segment.parent >= 0 else (segment.root, b"", ())
            for index, page in enumerate(segment.pages):
                data = segment.data[index * step : (index + 1) * step]
                prefix = (prefix[0], prefix[1] + data, (*prefix[2], segment.extras.get(index)))
                record = Record(prefix, page, segment.stamp)
                record.hits = segment.hits
                self.records.append(record)
                self._cached += 1
            ends.append(prefix)
            self._clock = max(self._clock, segment.stamp)
        self.evictable = self._cached
        self._version += 1

    @override
    def check_integrity(self) -> None:
        records = [*self.records, *self.ends]
        require(len(records) == self._cached, "the number of pages is wrong")
        idle = sum(1 for record in records if record.lock == 0)
        require(idle == self.evictable, "evictable pages are miscounted")
        prefixes = {record.prefix for record in records}
        require(len(prefixes) == len(records), "a page is listed twice")
        for root, data, seen in prefixes:
            before = (root, data[: -self.page_bytes], seen[:-1])
            if len(data) % self.page_bytes:
                before = (root, data[: -(len(data) % self.page_bytes)], seen[:-1])
            require(len(seen) == 1 or before in prefixes, "a chain has a gap")
