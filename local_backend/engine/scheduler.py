"""Decides who is computed next: admission, sharing, passes, and who has to give way.

Who was submitted first goes first, everywhere. A request that does not fit is not overtaken by
later ones. One that waits for pages which another request is just computing is, as long as enough
pages and a place are left for it.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from operator import attrgetter

from local_backend.engine.config import EngineConfig
from local_backend.engine.generation import Generation
from local_backend.errors import OutOfPagesError
from local_backend.kvcache.coordinator import plan_jointly
from local_backend.kvcache.keys import TOKEN_BYTES, pack_tokens
from local_backend.kvcache.manager import CacheManager
from local_backend.kvcache.sequence import Container, Sequence
from local_backend.layers.context import Logits

_by_order = attrgetter("order")


@dataclass(frozen=True, slots=True)
class Work:
    """Part of a pass.

    Attributes:
        generation: For whom.
        sequence: Its pages.
        start: First position to compute.
        end: Position behind the last; equal to ``start`` where everything was found.
        logits: Which positions need scores.
    """

    generation: Generation
    sequence: Sequence
    start: int
    end: int
    logits: Logits

    @property
    def completes(self) -> bool:
        """Whether all known tokens are computed after it."""
        return self.end == len(self.sequence.key)


class Scheduler:
    """Requests that wait and that run.

    Args:
        manager: Of their pages.
        config: Limits.
    """

    def __init__(self, manager: CacheManager, config: EngineConfig) -> None:
        self._manager = manager
        self._config = config
        self._size = manager.page_size
        self.waiting: list[Generation] = []
        self.running: list[Generation] = []
        self.preempted = 0
        self.evicted_in_growth = 0

    def add(self, generation: Generation) -> None:
        """Let a request wait for its turn."""
        self.waiting.append(generation)

    def remove(self, generation: Generation) -> None:
        """Forget a request that ended; its pages are given back."""
        if generation.sequence is None:
            self.waiting.remove(generation)
            return
        self.running.remove(generation)
        sequence, generation.sequence = generation.sequence, None
        self._manager.release(sequence)

    # Admission.

    def admit(self, now: float) -> None:
        """Give pages to those whose turn it is."""
        kept: list[Generation] = []
        kept_free = 0
        for index, generation in enumerate(self.waiting):
            if len(self.running) + len(kept) >= self._config.max_running:
                kept.extend(self.waiting[index:])
                break
            if self._waits_for_leader(generation):
                kept.append(generation)
                kept_free += self._pages(generation) - generation.leader_until // self._size
            elif not self._admit(generation, now, kept_free):
                kept.extend(self.waiting[index:])
                break
        self.waiting = kept

    def _tokens(self, generation: Generation) -> int:
        """Tokens that it needs pages for at admission."""
        if self._config.container is Container.DYNAMIC:
            return len(generation.key)
        # The last token of an answer is never computed.
        return max(len(generation.key), generation.prompt + generation.room - 1)

    def _pages(self, generation: Generation) -> int:
        return -(-self._tokens(generation) // self._size)

    def _admit(self, generation: Generation, now: float, kept_free: int) -> bool:
        if self.running and not self._leaves_room(generation, kept_free):
            return False
        sequence = self._manager.admit(
            generation.request.name,
            generation.key,
            reserve=self._tokens(generation) - len(generation.key),
            container=self._config.container,
            hit_limit=generation.hit_limit,
        )
        if sequence is None:
            return False
        generation.note_admitted(sequence, now)
        generation.leader, generation.found = None, None
        insort(self.running, generation, key=_by_order)
        return True

    def _leaves_room(self, generation: Generation, kept_free: int) -> bool:
        """Whether pages remain for those that wait for a leader, and one for each that runs.

        Without that margin a request would be let in only to give way to the next page of an older
        one, and be computed again and again.
        """
        if self._config.container is not Container.STATIC:
            kept_free += len(self.running)
        groups, need = self._manager.groups, self._pages(generation)
        if all(need + kept_free <= g.pool.available + g.evictable - need for g in groups):
            return True  # even if all that it finds were idle
        joint = plan_jointly(groups, generation.key, generation.hit_limit)
        more = self._tokens(generation) + kept_free * self._size
        return all(g.fits(p, more) for g, p in zip(groups, joint.plans, strict=True))

    # Sharing among requests that run side by side.

    def _waits_for_leader(self, generation: Generation) -> bool:
        if not self._config.share_in_flight:
            return False
        leader = generation.leader
        if leader is None or not _is_computing(leader, generation.leader_until):
            self._find_leader(generation)
        return generation.leader is not None

    def _find_leader(self, generation: Generation) -> None:
        """Look for a running request that is computing the next page that this one needs."""
        generation.leader = None
        size, limit = self._size, generation.hit_limit
        best = 0
        for other in self.running:
            if not other.is_prefill:
                continue
            shared = min(common_pages(generation, other, size) * size, limit // size * size)
            if shared > best and _is_computing(other, shared):
                generation.leader, best = other, shared
        if generation.leader is None:
            return
        found = plan_jointly(self._manager.groups, generation.key, limit).length
        if found >= best:
            generation.leader = None
            return
        generation.leader_until = best
        if generation.found is None:
            generation.found = found

    # Passes.

    def plan(self) -> list[Work]:
        """Who is computed in the next pass, and how much of each."""
        works: list[Work] = []
        for generation in list(self.running):
            if generation.sequence is not None and generation.pending is not None:
                sequence = self._grow(generation, generation.sequence, generation.pending)
                if sequence is not None:
                    end = len(sequence.key)
                    works.append(Work(generation, sequence, end - 1, end, Logits.LAST))
        budget = self._config.pass_tokens(len(works)) - len(works)
        decoding = {work.generation.order for work in works}
        for generation in self.running:
            sequence = generation.sequence
            if sequence is None or generation.order in decoding:
                continue
            start, length = sequence.computed, len(sequence.key)
            end = self._chunk_end(start, length, budget)
            if end == start < length:
                break
            needs = end == length and generation.needs_token
            logits = Logits.LAST if needs else Logits.NONE
            works.append(Work(generation, sequence, start, end, logits))
            budget -= end - start
        return works

    def _chunk_end(self, start: int, length: int, budget: int) -> int:
        """Chunks end with a page where they can, so that others can take it over."""
        if length - start <= budget:
            return length
        end = start + max(0, budget)
        whole = end // self._size * self._size
        return whole if whole > start else end

    def _grow(self, generation: Generation, sequence: Sequence, token: int) -> Sequence | None:
        """Put the last token into the pages; the youngest gives way where there are none."""
        while True:
            free = [group.pool.available for group in self._manager.groups]
            held = [len(table.pages) for table in sequence.tables]
            try:
                self._manager.append(sequence, (token,))
            except OutOfPagesError:
                youngest = self.running[-1]
                self.preempt(youngest)
                if youngest is generation:
                    return None
                continue
            generation.pending = None
            for room, before, table in zip(free, held, sequence.tables, strict=True):
                self.evicted_in_growth += max(0, len(table.pages) - before - room)
            return sequence

    def preempt(self, generation: Generation) -> None:
        """Take a request's pages; what it had complete stays cached while there is room."""
        sequence = generation.sequence
        if sequence is None:
            return
        self.running.remove(generation)
        generation.key = sequence.key
        generation.reach = max(generation.reach, sequence.computed)
        if generation.pending is not None:
            generation.key.append(pack_tokens((generation.pending,)))
            generation.pending = None
        generation.sequence = None
        self._manager.release(sequence)
        insort(self.waiting, generation, key=_by_order)
        self.preempted += 1


def _is_computing(leader: Generation, until: int) -> bool:
    """Whether a request is still computing its prompt, and the part of it up to some length."""
    sequence = leader.sequence
    return sequence is not None and sequence.computed < until <= len(sequence.key)


def common_pages(one: Generation, other: Generation, page_size: int) -> int:
    """Whole pages at the beginning that two requests have in common."""
    most = min(len(one.key), len(other.key)) // page_size
    first = page_size * TOKEN_BYTES
    is_alike = one.key.root == other.key.root and one.key.data[:first] == other.key.data[:first]
    if not most or not is_alike:
        return 0
    mine, theirs = one.key.chain(page_size, most), other.key.chain(page_size, most)
    low, high = 0, most
    while low < high:  # pages agree up to one, and none after it does
        middle = (low + high + 1) // 2
        if mine[middle - 1] == theirs[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
