"""A toy engine over the cache manager whose KV can be checked to the byte.

The "KV" of a token is a digest of everything that it depends on: the namespace, all tokens up to
it, and what placeholders stand for. A page that holds anything else is wrong, whoever wrote it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as Seq
from functools import lru_cache
from pathlib import Path

from local_backend.kvcache.coordinator import make_groups
from local_backend.kvcache.groups import CacheGroup
from local_backend.kvcache.keys import Namespace, Span, TokenKey
from local_backend.kvcache.manager import CacheManager
from local_backend.kvcache.offload import Offload, WriteMode
from local_backend.kvcache.sequence import Container, Sequence
from local_backend.kvcache.snapshot import restore, save
from local_backend.kvcache.specs import GroupSpec, simple_group
from local_backend.kvcache.store import BytesStore, bytes_stores
from local_backend.kvcache.tiers.disk import DiskTier
from local_backend.kvcache.tiers.host import HostTier
from local_backend.kvcache.tiers.stack import TierStack
from local_backend.kvcache.writeback import StepCarrier

KV_BYTES = 4


def kv_of(key: TokenKey, group: str = "full") -> bytes:
    """What the KV of all tokens has to be, one after the other."""
    return _kv_of(key.root, key.data, key.spans, group)


@lru_cache(maxsize=4096)
def _kv_of(root: bytes, data: bytes, spans: tuple[Span, ...], group: str) -> bytes:
    found = []
    state = hashlib.blake2b(root + group.encode(), digest_size=16)
    for position in range(len(data) // 4):
        state.update(data[position * 4 : position * 4 + 4])
        for span in spans:
            if span.start <= position < span.start + span.length:
                state.update(span.digest + position.to_bytes(4, "little"))
        found.append(state.copy().digest()[:KV_BYTES])
    return b"".join(found)


class World:
    """One manager, its memory and its tiers.

    Args:
        folder: For the disk tier and snapshots; None for neither.
        page_size: Tokens in a page.
        pages: Pages of each group.
        windows: Window of each group; 0 is a full one.
        cache: Name of the prefix cache.
        mode: When pages go to the tiers.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        page_size: int = 4,
        pages: int = 40,
        windows: Seq[int] = (0,),
        cache: str = "radix",
        policy: str = "lru",
        tails: bool = False,
        mode: WriteMode = WriteMode.THROUGH,
        host_bytes: int = 4000,
        disk_bytes: int = 20_000,
        layout: str = "",
    ) -> None:
        self.folder = folder
        self.page_size = page_size
        self.pages = pages
        self.cache, self.policy, self.tails = cache, policy, tails
        self.mode, self.host_bytes, self.disk_bytes = mode, host_bytes, disk_bytes
        self.specs: tuple[GroupSpec, ...] = tuple(
            simple_group(
                page_size,
                page_size * KV_BYTES,
                name=f"window-{window}" if window else "full",
                window=window,
                layout=layout,
            )
            for window in windows
        )
        self.started = 0
        self.start()

    def start(self) -> None:
        """Begin with empty memory; what a disk tier has is there."""
        self.started += 1
        self.stores: dict[str, BytesStore] = bytes_stores(
            self.specs, {spec.name: self.pages for spec in self.specs}
        )
        self.groups: tuple[CacheGroup, ...] = make_groups(
            self.specs,
            {spec.name: self.pages for spec in self.specs},
            cache=self.cache,
            policy=self.policy,
            tails=self.tails,
            stores=self.stores,
        )
        self.offload: Offload | None = None
        self.carrier: StepCarrier | None = None
        if self.folder is not None:
            self.host = HostTier(self.host_bytes)
            self.disk = DiskTier(self.folder / "tier", self.disk_bytes)
            stack = TierStack([self.host, self.disk])
            self.carrier = StepCarrier(stack)
            self.offload = Offload(stack, mode=self.mode, carrier=self.carrier)
        self.manager = CacheManager(self.groups, offload=self.offload)

    def admit(
        self,
        name: str,
        tokens: Seq[int] | TokenKey,
        *,
        namespace: Namespace | None = None,
        reserve: int = 0,
        container: Container = Container.DYNAMIC,
        compute: bool = True,
    ) -> Sequence | None:
        """Admit a request and compute what the cache does not have."""
        space = Namespace("world") if namespace is None else namespace
        key = tokens if isinstance(tokens, TokenKey) else TokenKey(space, tokens)
        sequence = self.manager.admit(name, key, reserve=reserve, container=container)
        if sequence is not None and compute:
            self.compute(sequence)
        return sequence

    def compute(self, sequence: Sequence, commit: bool = True, most: int = 1 << 30) -> None:
        """Fill in the KV of tokens that lack it, and publish."""
        first = sequence.computed
        last = min(len(sequence), first + most)
        self.manager.prepare_write(sequence, first, last)
        self.manager.run_copies()
        for group, table in zip(self.groups, sequence.tables, strict=True):
            store = self.stores[group.spec.name]
            wanted = kv_of(sequence.key, group.spec.name)
            for position in range(first, last):
                page = table.pages[position // self.page_size]
                kv = wanted[position * KV_BYTES : (position + 1) * KV_BYTES]
                store.write_at(page, position % self.page_size * KV_BYTES, kv)
        if commit:
            self.manager.commit(sequence, last)

    def read(self, sequence: Sequence, group: int = 0) -> bytes:
        """All KV that attention would read through a table; what is out of a window is zero."""
        table = sequence.tables[group]
        store = self.stores[self.specs[group].name]
        pages = b"".join(store.read_page(page) for page in table.pages)
        return pages[: sequence.computed * KV_BYTES]

    def wrong(self, sequence: Sequence) -> list[str]:
        """Groups in which attention would read KV that is not what it has to be."""
        found = []
        for number, spec in enumerate(self.specs):
            window = spec.window
            first = max(0, sequence.computed - window + 1) if window else 0
            wanted = kv_of(sequence.key, spec.name)[: sequence.computed * KV_BYTES]
            if self.read(sequence, number)[first * KV_BYTES :] != wanted[first * KV_BYTES :]:
                found.append(spec.name)
        return found

    def evict(self, count: int) -> None:
        for group in self.groups:
            group.evict(count)

    def save(self) -> int:
        assert self.folder is not None
        return save(self.manager, self.folder / "snapshot")

    def crash(self) -> None:
        """Lose the process: memory, jobs under way, the host tier."""
        self.start()

    def restore(self) -> None:
        assert self.folder is not None
        restore(self.manager, self.folder / "snapshot")
