"""Admits requests to the cache, lets them grow, publishes what they computed, takes it all back.

The manager belongs to one thread. Everything that can fail is checked before anything is changed:
a request that is refused leaves no trace, not even in the order of eviction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq

from local_backend.errors import CacheStateError, OutOfPagesError, RequestTooLargeError
from local_backend.kvcache.base import require
from local_backend.kvcache.coordinator import JointPlan, plan_jointly
from local_backend.kvcache.copies import PendingCopies
from local_backend.kvcache.events import EventKind, Events
from local_backend.kvcache.groups import CacheGroup, Copy
from local_backend.kvcache.keys import Span, TokenKey, pack_tokens
from local_backend.kvcache.offload import Offload
from local_backend.kvcache.pages import SizeInfo
from local_backend.kvcache.sequence import CacheUsage, Container, Sequence

_NO_PAYLOADS: Mapping[int, bytes] = {}


class CacheManager:
    """The cache of one model.

    Args:
        groups: Of the model's layers, from `make_groups`.
        offload: Tiers to restore from and to write to; None for none.
        clock: Seconds, for the time that restoring takes.
        events: Counters and listeners.
    """

    def __init__(
        self,
        groups: Seq[CacheGroup],
        *,
        offload: Offload | None = None,
        clock: Callable[[], float] = time.perf_counter,
        events: Events | None = None,
    ) -> None:
        self.groups = tuple(groups)
        self._numbered = tuple(enumerate(self.groups))
        self.page_size = groups[0].page_size
        self.events = Events() if events is None else events
        self.offload = offload
        self._clock = clock
        self._live: dict[str, Sequence] = {}
        self._copies = PendingCopies(self.groups)
        if offload is not None:
            offload.attach(self.groups, self.events)

    @property
    def live(self) -> tuple[Sequence, ...]:
        """All admitted requests that were not released."""
        return tuple(self._live.values())

    # Admission.

    def hit_length(self, key: TokenKey, hit_limit: int | None = None) -> int:
        """Tokens of a prompt that would not have to be computed now. Changes nothing."""
        limit = len(key) - 1 if hit_limit is None else hit_limit
        tiers = None if self.offload is None else self.offload.tiers
        joint = plan_jointly(self.groups, key, limit, tiers)
        return joint.length + joint.plans[0].tail_tokens

    def admit(
        self,
        name: str,
        key: TokenKey,
        *,
        reserve: int = 0,
        container: Container = Container.DYNAMIC,
        hit_limit: int | None = None,
    ) -> Sequence | None:
        """Give a request its pages.

        Args:
            name: Unique among the live requests.
            key: Its prompt; copied.
            reserve: Tokens that it may add, for a static container.
            container: How it grows.
            hit_limit: Most tokens to reuse; by default all but one, so that there is something
                to compute the next token from.

        Returns:
            The request, or None where it does not fit now. Then nothing has changed.

        Raises:
            RequestTooLargeError: It would not fit into an empty cache.
            CacheStateError: A live request has that name, or the prompt is empty.
        """
        length = len(key)
        if name in self._live or not length:
            raise CacheStateError(f"request {name!r} is live already or has no tokens")
        tokens = length + reserve if container is Container.STATIC else length
        limit = length - 1 if hit_limit is None else min(hit_limit, length)
        if self.offload is not None:
            return self._admit_with_tiers(name, key, tokens, limit, container, self.offload)
        groups = self.groups
        if len(groups) == 1:
            plan = groups[0].plan(key, limit)
            joint = JointPlan(plan.length, [plan])
            is_fit = groups[0].fits(plan, tokens) or self._fits(name, joint, tokens)
        else:
            joint = plan_jointly(groups, key, limit)
            is_fit = self._fits(name, joint, tokens)
        return self._open(name, key, tokens, container, joint) if is_fit else None

    def _admit_with_tiers(
        self,
        name: str,
        key: TokenKey,
        tokens: int,
        limit: int,
        container: Container,
        offload: Offload,
    ) -> Sequence | None:
        begun = self._clock()
        without: set[bytes] = set()
        while True:
            joint = plan_jointly(self.groups, key, limit, offload.tiers, without)
            if not self._fits(name, joint, tokens):
                return None
            loaded = offload.load(self.groups, joint.plans, without)
            if loaded is not None:  # otherwise one more page is known to be of no use
                break
        sequence = self._open(name, key, tokens, container, joint, loaded.payloads)
        if loaded.pages:
            sequence.restored_pages = loaded.pages
            sequence.restore_s = self._clock() - begun
            pages = sum(loaded.pages.values())
            self.events.emit(EventKind.RESTORE, pages=pages, tokens=sequence.restored, request=name)
        return sequence

    def _fits(self, name: str, joint: JointPlan, tokens: int) -> bool:
        plans = joint.plans
        for number, group in self._numbered:
            plan = plans[number]
            if not group.fits(plan, tokens):
                self.require_possible(name, tokens)
                self.events.emit(EventKind.REFUSE, plan.need, 0, name, group=group.spec.name)
                return False
        return True

    def require_possible(self, name: str, tokens: int) -> None:
        """Check that a request fits into an empty cache.

        Raises:
            RequestTooLargeError: It does not.
        """
        for group in self.groups:
            whole = group.pages_for(tokens)
            if whole > group.pool.total:
                raise RequestTooLargeError(
                    f"request {name!r} needs {whole} pages of group {group.spec.name}, which has"
                    f" {group.pool.total}",
                    "shorten it, or give the cache more pages",
                )

    def _open(
        self,
        name: str,
        key: TokenKey,
        tokens: int,
        container: Container,
        joint: JointPlan,
        payloads: Seq[Mapping[int, bytes]] | None = None,
    ) -> Sequence:
        sequence = Sequence(name, key.copy())
        evicted = 0
        plans = joint.plans
        for number, group in self._numbered:
            plan = plans[number]
            bytes_of = _NO_PAYLOADS if payloads is None else payloads[number]
            free = group.pool.free
            before = len(free)
            table, tail = group.open(plan, sequence.key, tokens, bytes_of)
            evicted += len(free) - before + plan.need
            sequence.tables.append(table)
            if tail is not None:
                self._copies.from_cache(group, table, tail, plan)
                sequence.copied = plan.tail_tokens
                self.events.emit(EventKind.COPY, group=group.spec.name, pages=1, request=name)
        if payloads is not None:
            restored = {page for plan in joint.plans for page, _ in plan.restore}
            sequence.restored = len(restored) * self.page_size
        if evicted:
            self.events.emit(EventKind.EVICT, evicted, 0, name)
        sequence.computed = hit = joint.length + sequence.copied
        sequence.resident = hit - sequence.restored
        sequence.capacity = tokens
        if container is not sequence.container:
            sequence.container = container
        if joint.limited_by:
            sequence.limited_by = joint.limited_by
        self._live[name] = sequence
        kind = EventKind.HIT if hit else EventKind.MISS
        self.events.emit(kind, 0, hit, name, "", joint.limited_by)
        return sequence

    # Growth.

    def append(
        self, sequence: Sequence, tokens: Iterable[int] | bytes, spans: tuple[Span, ...] = ()
    ) -> None:
        """Add tokens to a request, and pages where they need some.

        Raises:
            OutOfPagesError: There are none; nothing was changed. A static container refuses what
                goes beyond its reserve.
        """
        self._require_live(sequence)
        data = tokens if isinstance(tokens, bytes) else pack_tokens(tokens)
        length = len(sequence.key) + len(data) // 4
        if sequence.container is Container.STATIC and length > sequence.capacity:
            raise OutOfPagesError(
                f"request {sequence.name!r} reserved {sequence.capacity} tokens, {length} wanted"
            )
        missing = [
            group.pages_for(length) - len(table.pages)
            for group, table in zip(self.groups, sequence.tables, strict=True)
        ]
        for group, count in zip(self.groups, missing, strict=True):
            if count > group.pool.available + group.evictable:
                raise OutOfPagesError(
                    f"request {sequence.name!r} needs {count} more pages of group {group.spec.name}"
                )
        for group, table in zip(self.groups, sequence.tables, strict=True):
            group.grow(table, length)
        sequence.key.append(data, spans)

    def truncate(self, sequence: Sequence, length: int) -> None:
        """Take tokens back, such as rejected candidates. Complete pages stay.

        Raises:
            CacheStateError: Published pages or the prompt's reused part would be cut.
        """
        self._require_live(sequence)
        for group, table in zip(self.groups, sequence.tables, strict=True):
            if length < table.published * group.page_size or length > len(sequence.key):
                raise CacheStateError(f"request {sequence.name!r} cannot be cut to {length} tokens")
        if sequence.container is Container.DYNAMIC:
            for group, table in zip(self.groups, sequence.tables, strict=True):
                keep = group.pages_for(length)
                self._copies.cancel(group.spec.name, self._sole(group, table.pages[keep:]))
                group.cut(table, keep)
        sequence.key.cut(length)
        sequence.computed = min(sequence.computed, length)

    def commit(self, sequence: Sequence, computed: int) -> int:
        """Say how many tokens have their KV in place; complete pages are published.

        Never say more than is final: a candidate that may be rejected does not count.

        Returns:
            Pages that the cache took over.

        Raises:
            CacheStateError: There are not as many tokens, or a copy into the pages is due.
        """
        if not sequence.is_live:
            self._require_live(sequence)
        key = sequence.key
        if not sequence.computed <= computed <= len(key):
            raise CacheStateError(
                f"request {sequence.name!r} has {len(sequence.key)} tokens, {sequence.computed} of"
                f" them computed; {computed} is not possible"
            )
        if self._copies.pending:
            self._require_copied(sequence)
        published = 0
        tables = sequence.tables
        for number, group in self._numbered:
            table = tables[number]
            start = table.published
            count = group.commit(table, key, computed)
            if count and self.offload is not None:
                self.offload.published(group, table, start)
            published += count
        sequence.computed = computed
        if published:
            sequence.published_pages += published
            self.events.emit(EventKind.PUBLISH, published, 0, sequence.name)
        return published

    def catch_up(self, sequence: Sequence) -> int:
        """Take over what others have published of its prompt since it was admitted.

        Two requests with the same beginning that run side by side compute it once that way: the
        second looks for the first one's pages before each chunk.

        Returns:
            Tokens that need no computation any more.
        """
        self._require_live(sequence)
        size = self.page_size
        joint = plan_jointly(self.groups, sequence.key, sequence.prompt - 1)
        if joint.length <= sequence.computed:
            return 0
        end = joint.length // size
        for group, table in zip(self.groups, sequence.tables, strict=True):
            swapped = table.pages[table.published : end]
            self._copies.cancel(group.spec.name, self._sole(group, swapped))
            group.catch_up(table, sequence.key, joint.length)
        gained = joint.length - sequence.computed
        sequence.computed = joint.length
        sequence.resident += gained
        self.events.emit(EventKind.HIT, 0, gained, sequence.name, limited_by=joint.limited_by)
        return gained

    def prepare_write(self, sequence: Sequence, first: int, last: int) -> list[Copy]:
        """Make the pages of some positions writable; the copies that this needs are due.

        Args:
            sequence: Live.
            first: First position to be written.
            last: Position behind the last.

        Returns:
            New copies, also listed in `due_copies`.

        Raises:
            OutOfPagesError: A page is missing for a copy; nothing was changed.
            CacheStateError: A position lies in a page that was published.
        """
        self._require_live(sequence)
        size = self.page_size
        wanted = range(first // size, -(-last // size))
        if not 0 <= first <= last <= min(len(t.pages) for t in sequence.tables) * size:
            raise CacheStateError(f"{sequence.name!r} has no positions {first} to {last}")
        shared: list[tuple[CacheGroup, int, int]] = []
        for number, (group, table) in enumerate(zip(self.groups, sequence.tables, strict=True)):
            closed = [i for i in wanted if i < table.published]
            if closed:
                raise CacheStateError(f"page {closed[0]} of {sequence.name!r} is published")
            mine = [i for i in wanted if not group.is_writable(table, i)]
            if len(mine) > group.pool.available + group.evictable:
                raise OutOfPagesError(f"{len(mine)} pages are missing to separate shared ones")
            shared.extend((group, number, i) for i in mine)
        if shared and self._copies.pending:
            self._require_copied(sequence)
        made = []
        for group, number, index in shared:
            old, new = group.separate(sequence.tables[number], index)
            tokens = min(size, max(0, sequence.computed - index * size))
            self._copies.from_fork(group, old, new, tokens)
            made.append(Copy(group.spec.name, old, new, tokens))
        if made:
            self.events.emit(EventKind.COPY, pages=len(made), request=sequence.name)
        return made

    def fork(self, sequence: Sequence, name: str) -> Sequence:
        """A second request with the same tokens and pages, to be continued in another way.

        Raises:
            CacheStateError: A copy into its pages is due, or the name is taken.
        """
        self._require_live(sequence)
        if name in self._live:
            raise CacheStateError(f"request {name!r} is live already")
        if self._copies.pending:
            self._require_copied(sequence)
        self.commit(sequence, sequence.computed)
        other = Sequence(name, sequence.key.copy())
        other.tables = [
            group.fork(table) for group, table in zip(self.groups, sequence.tables, strict=True)
        ]
        other.prompt = other.resident = sequence.prompt
        other.computed = sequence.computed
        other.container, other.capacity = sequence.container, sequence.capacity
        self._live[name] = other
        return other

    def release(self, sequence: Sequence) -> None:
        """Take a request's pages back; what was published stays in the cache.

        So does the page that never became full, where tails are reused, as long as there is room.
        """
        if not sequence.is_live:
            self._require_live(sequence)
        tables = sequence.tables
        for number, group in self._numbered:
            table = tables[number]
            waits = False
            if self._copies.pending:
                own = self._sole(group, group.table_pages(table))
                waits = self._copies.concerns(group.spec.name, own)
                self._copies.cancel(group.spec.name, own)
            is_open = sequence.computed % group.page_size > 0 and not waits
            if is_open and group.leave_end(table, sequence.key, sequence.computed):
                self.events.emit(EventKind.PUBLISH, 1, 0, sequence.name)
            group.close(table)
        sequence.is_live = False
        del self._live[sequence.name]

    # Copies.

    def due_copies(self) -> list[Copy]:
        """Copies that must run before the next computation."""
        return self._copies.due()

    def run_copies(self) -> int:
        """Run them in the stores; how many there were."""
        return self._copies.run()

    def finish_copies(self) -> int:
        """Say that somebody else ran them; how many there were."""
        return self._copies.finish()

    # Books.

    def usage(self, sequence: Sequence) -> CacheUsage:
        """What the cache did for a request."""
        return sequence.usage(self.page_size)

    def sizes(self) -> dict[str, SizeInfo]:
        """Where the pages are, by group."""
        return {group.spec.name: group.sizes() for group in self.groups}

    def poll(self) -> int:
        """Take note of offloads that have ended; how many. Call it once a step."""
        return 0 if self.offload is None else self.offload.carrier.poll()

    def reset(self) -> int:
        """Forget everything cached in memory; tiers keep theirs.

        Returns:
            Pages freed.

        Raises:
            CacheStateError: Requests are live, or pages are on their way to a tier.
        """
        if self._live:
            raise CacheStateError(f"{len(self._live)} requests are live", "release them first")
        return sum(group.reset() for group in self.groups)

    def require_empty(self) -> None:
        """Check that no page is cached or in use.

        Raises:
            CacheStateError: One is.
        """
        used = sum(group.pool.total - group.pool.available for group in self.groups)
        if used:
            raise CacheStateError(f"{used} pages are cached or in use", "take a new manager")

    def close(self) -> None:
        """Finish offloads and close the tiers."""
        if self.offload is not None:
            self.offload.close()

    def check_integrity(self) -> None:
        """Compare all counters with what is really held.

        Raises:
            CacheIntegrityError: Something contradicts.
        """
        for number, group in enumerate(self.groups):
            tables = [sequence.tables[number] for sequence in self._live.values()]
            group.check(tables, self._copies.held(group.spec.name))
            sizes = group.sizes()
            total = sizes.available + sizes.evictable + sizes.protected
            require(total == sizes.total, f"{total} of {sizes.total} pages are accounted for")

    def _require_live(self, sequence: Sequence) -> None:
        if not sequence.is_live:
            raise CacheStateError(f"request {sequence.name!r} was released")

    def _require_copied(self, sequence: Sequence) -> None:
        for group, table in zip(self.groups, sequence.tables, strict=True):
            if self._copies.concerns(group.spec.name, table.pages):
                raise CacheStateError(
                    f"a copy into a page of {sequence.name!r} is due", "run the copies first"
                )

    @staticmethod
    def _sole(group: CacheGroup, pages: Iterable[int]) -> list[int]:
        return [page for page in pages if group.pool.holders(page) == 1]
