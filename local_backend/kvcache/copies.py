"""Copies that are due: which page into which, and what stays protected until they have run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from local_backend.kvcache.base import Match, Pin
from local_backend.kvcache.groups import CacheGroup, Copy, Plan, Table
from local_backend.kvcache.paged import PagedGroup


@dataclass(slots=True)
class _Pending:
    copy: Copy
    release: Callable[[], None]
    held: int


class PendingCopies:
    """The list; sources are protected from the moment of the request until `finish`.

    Attributes:
        pending: By group and target; others only ask whether there are any.
    """

    def __init__(self, groups: Sequence[CacheGroup]) -> None:
        self._stores = {group.spec.name: group.store for group in groups}
        self.pending: dict[tuple[str, int], _Pending] = {}

    def from_cache(self, group: CacheGroup, table: Table, pin: Pin, plan: Plan) -> None:
        """The first tokens of a cached page go into the first page of a request's own."""
        match = plan.place
        if not isinstance(group, PagedGroup) or not isinstance(match, Match) or match.tail is None:
            raise TypeError("only a prefix cache reports a tail")
        cache = group.cache
        source = match.tail.pages[-1]
        copy = Copy(group.spec.name, source, table.pages[plan.resident], plan.tail_tokens)
        self._add(copy, lambda: cache.unpin(pin), held=0)

    def from_fork(self, group: CacheGroup, source: int, target: int, tokens: int) -> None:
        """A page that two requests hold goes into one that one of them holds."""
        copy = Copy(group.spec.name, source, target, tokens)
        self._add(copy, lambda: group.drop(array("i", [source])), held=source)

    def _add(self, copy: Copy, release: Callable[[], None], held: int) -> None:
        self.pending[copy.group, copy.target] = _Pending(copy, release, held)

    def due(self) -> list[Copy]:
        """All that must run before the next computation."""
        return [pending.copy for pending in self.pending.values()]

    def concerns(self, group: str, pages: Collection[int]) -> bool:
        """Whether one of the pages waits for its content."""
        return any((group, page) in self.pending for page in pages)

    def run(self) -> int:
        """Do all copies in the stores, and finish them; how many there were."""
        for pending in self.pending.values():
            store = self._stores[pending.copy.group]
            if store is not None:
                store.copy_page(pending.copy.source, pending.copy.target)
        return self.finish()

    def finish(self) -> int:
        """The copies have run: sources need no protection any more."""
        ended, self.pending = self.pending, {}
        for pending in ended.values():
            pending.release()
        return len(ended)

    def cancel(self, group: str, pages: Collection[int]) -> None:
        """Forget copies into pages that are about to be given up."""
        for page in pages:
            pending = self.pending.pop((group, page), None)
            if pending is not None:
                pending.release()

    def held(self, group: str) -> Iterator[int]:
        """Pages of a group that only a pending copy holds."""
        for (name, _), pending in self.pending.items():
            if name == group and pending.held:
                yield pending.held
