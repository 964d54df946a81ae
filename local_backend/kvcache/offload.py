"""Between the cache and the tiers: what goes out, when, and what comes back."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from local_backend.kvcache.events import EventKind, Events
from local_backend.kvcache.groups import CacheGroup, Plan, Table
from local_backend.kvcache.tiers.stack import TierStack
from local_backend.kvcache.writeback import Carrier, Job, ThreadCarrier, read_from


class WriteMode(StrEnum):
    """When a page goes to the tiers."""

    THROUGH = "through"
    """When it is published. A crash then loses only what was under way."""
    BACK = "back"
    """When it is evicted. Less is written; a crash loses what was still in memory."""


@dataclass(slots=True)
class Loaded:
    """What the tiers gave for one admission.

    Attributes:
        payloads: For each group, the bytes by page index.
        pages: By tier, how many pages it gave.
    """

    payloads: list[dict[int, bytes]]
    pages: dict[str, int] = field(default_factory=dict)


class Offload:
    """Writes pages to tiers in the background and reads them back.

    Args:
        tiers: The fastest first.
        mode: When to write.
        carrier: Does the writing; by default a thread.
    """

    def __init__(
        self,
        tiers: TierStack,
        *,
        mode: WriteMode = WriteMode.THROUGH,
        carrier: Carrier | None = None,
    ) -> None:
        self.tiers = tiers
        self.mode = mode
        self.carrier: Carrier = ThreadCarrier(tiers) if carrier is None else carrier
        self._events = Events()

    def attach(self, groups: Sequence[CacheGroup], events: Events) -> None:
        """Serve the groups of one manager."""
        self._events = events
        if self.mode is WriteMode.BACK:
            for group in groups:
                group.set_victim_sink(self._victims(group))

    def _victims(self, group: CacheGroup) -> Callable[[list[tuple[bytes, int]]], None]:
        def take(items: list[tuple[bytes, int]]) -> None:
            store = group.store
            if store is None:
                return
            held = self.tiers.held(group.spec, [key for key, _ in items])
            items = [item for item in items if item[0] not in held]
            # The pages are used again at once, so their bytes are taken now; writing can wait.
            payloads = [store.read_page(page) for _, page in items]
            self._send(group, [key for key, _ in items], payloads.__getitem__, lambda: None)

        return take

    def published(self, group: CacheGroup, table: Table, start: int) -> None:
        """Pages of a table were published from an index on."""
        store = group.store
        if self.mode is not WriteMode.THROUGH or store is None:
            return
        offer = group.offer(table, start)
        pages = array("i", offer.pages)
        self._send(group, offer.keys, read_from(store, pages), offer.release)

    def _send(
        self,
        group: CacheGroup,
        keys: list[bytes],
        read: Callable[[int], bytes],
        release: Callable[[], None],
    ) -> None:
        name = group.spec.name

        def done(job: Job) -> None:
            release()
            self._events.emit(EventKind.OFFLOAD, group=name, pages=job.kept)
            if job.kept < len(job.keys):
                self._events.emit(EventKind.DROP, group=name, pages=len(job.keys) - job.kept)

        if not keys:
            release()
        elif not self.carrier.submit(Job(group.spec, keys, read, done)):
            release()
            self._events.emit(EventKind.DROP, group=name, pages=len(keys))

    def load(
        self, groups: Sequence[CacheGroup], plans: Sequence[Plan], without: set[bytes]
    ) -> Loaded | None:
        """The bytes of all pages that the plans want restored.

        Args:
            groups: With stores.
            plans: One for each group.
            without: Receives the identity of a page that no tier gave although one has it.

        Returns:
            The bytes, or None where a page failed: then plan again.
        """
        loaded = Loaded([{} for _ in groups])
        for group, plan, payloads in zip(groups, plans, loaded.payloads, strict=True):
            for index, key in plan.restore:
                found = self.tiers.load(group.spec, key)
                if found is None:
                    without.add(key)
                    return None
                payloads[index], tier = found
                loaded.pages[tier] = loaded.pages.get(tier, 0) + 1
        return loaded

    def close(self) -> None:
        """Finish what is under way and close the tiers."""
        self.carrier.close()
        self.tiers.close()
