"""The whole cache in one file, to start warm after a stop.

The file is written beside its place and moved there, and carries a digest of everything in it: a
torn one is refused. It holds token ids and KV, so only its owner may read it. Requests under way
are not in it; what they had published is.
"""

from __future__ import annotations

import hashlib
import os
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from local_backend.errors import SnapshotError
from local_backend.kvcache.base import Segment
from local_backend.kvcache.groups import CacheGroup
from local_backend.kvcache.keys import KEY_BYTES, TOKEN_BYTES, PageExtra
from local_backend.kvcache.manager import CacheManager
from local_backend.kvcache.paged import PagedGroup
from local_backend.kvcache.store import PageStore
from local_backend.kvcache.windowed import WindowGroup

_MAGIC = b"KVSNAP1\n"
_DIGEST_BYTES = 32
_GROUP = struct.Struct("<16sIII")  # layout, page size, page bytes, number of segments
_SEGMENT = struct.Struct(f"<i{KEY_BYTES}sQQIII")  # parent, root, stamp, hits, index, pages, extras
_EXTRA = struct.Struct("<III")  # page, offset, size


@dataclass(frozen=True, slots=True)
class Restored:
    """What a snapshot brought back.

    Attributes:
        pages: Pages taken over.
        left_out: Pages of the snapshot for which there was no room.
    """

    pages: int
    left_out: int


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A segment as it stands in the file; ``index`` counts for windows only."""

    segment: Segment
    index: int
    payloads: tuple[bytes, ...] = ()


def save(manager: CacheManager, path: Path) -> int:
    """Write everything that the caches of a manager hold.

    Args:
        manager: Its groups must have stores.
        path: Replaced in one step.

    Returns:
        Pages written.

    Raises:
        SnapshotError: A group has no store, or the file cannot be written.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    count = 0
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)

            def write(data: bytes) -> None:
                digest.update(data)
                file.write(data)

            write(_MAGIC + struct.pack("<I", len(manager.groups)))
            for group in manager.groups:
                count += _write_group(group, write)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise SnapshotError(f"{path} cannot be written: {error.strerror}") from error
    return count


def _write_group(group: CacheGroup, write: Callable[[bytes], None]) -> int:
    store = _store_of(group)
    stretches = list(_stretches(group))
    spec = group.spec
    write(_GROUP.pack(spec.layout, spec.page_size, spec.page_bytes, len(stretches)))
    count = 0
    for stretch in stretches:
        segment = stretch.segment
        write(
            _SEGMENT.pack(
                segment.parent,
                segment.root,
                segment.stamp,
                segment.hits,
                stretch.index,
                len(segment.pages),
                len(segment.extras),
            )
        )
        write(segment.data)
        for page, (extra, offset) in sorted(segment.extras.items()):
            write(_EXTRA.pack(page, offset, len(extra)) + extra)
        for page in segment.pages:
            write(store.read_page(page))
        count += len(segment.pages)
    return count


def _store_of(group: CacheGroup) -> PageStore:
    if group.store is None:
        raise SnapshotError(f"the pages of group {group.spec.name} are not known to the cache")
    return group.store


def _stretches(group: CacheGroup) -> Iterator[_Stretch]:
    if isinstance(group, PagedGroup):
        for segment in group.cache.export():
            yield _Stretch(segment, 0)
    elif isinstance(group, WindowGroup):
        for entry in group.entries():
            pages = array("i", [entry.page])
            # A window's page has no parent in the cache: its identity stands for its prefix.
            one = Segment(-1, entry.key, entry.data, pages, entry.stamp, entry.hits)
            yield _Stretch(one, entry.index)
    else:  # pragma: no cover - there is no third kind
        raise SnapshotError(f"group {group.spec.name} cannot be saved")


def restore(manager: CacheManager, path: Path) -> Restored:
    """Take over what `save` wrote, into a manager that caches nothing yet.

    Where there is less room than there was, the most recently used pages are kept.

    Args:
        manager: With the same groups and memory layout.
        path: The snapshot.

    Raises:
        SnapshotError: The file is torn, of another version or layout, or cannot be read. The
            manager is unchanged.
        CacheStateError: The manager is in use.
    """
    manager.require_empty()
    try:
        with path.open("rb") as file:
            _verify(file, path)
            file.seek(0)
            found = _read(manager, file, path)
    except OSError as error:
        raise SnapshotError(f"{path} cannot be read: {error.strerror}") from error
    kept = left = 0
    for group, stretches in zip(manager.groups, found, strict=True):
        chosen = _that_fit(stretches, group.pool.available)
        kept += sum(len(stretch.payloads) for stretch in chosen)
        left += sum(len(stretch.payloads) for stretch in stretches)
        _adopt(group, chosen)
    return Restored(kept, left - kept)


def _verify(file: BinaryIO, path: Path) -> None:
    size = os.fstat(file.fileno()).st_size - _DIGEST_BYTES
    if size < len(_MAGIC) or file.read(len(_MAGIC)) != _MAGIC:
        raise SnapshotError(f"{path} is no snapshot of this version")
    digest = hashlib.blake2b(_MAGIC, digest_size=_DIGEST_BYTES)
    left = size - len(_MAGIC)
    while left:
        part = file.read(min(left, 1 << 20))
        if not part:
            break
        digest.update(part)
        left -= len(part)
    if file.read() != digest.digest():
        raise SnapshotError(f"{path} is torn or damaged", "remove it and start cold")


def _read(manager: CacheManager, file: BinaryIO, path: Path) -> list[list[_Stretch]]:
    file.read(len(_MAGIC))
    (count,) = struct.unpack("<I", file.read(4))
    if count != len(manager.groups):
        raise SnapshotError(f"{path} is of a model with {count} groups of layers")
    found = []
    for group in manager.groups:
        spec = group.spec
        layout, page_size, page_bytes, segments = _GROUP.unpack(file.read(_GROUP.size))
        if (layout, page_size, page_bytes) != (spec.layout, spec.page_size, spec.page_bytes):
            raise SnapshotError(
                f"{path} was written with another memory layout of group {spec.name}",
                "it cannot be used; start cold",
            )
        found.append([_read_stretch(file, page_size, page_bytes) for _ in range(segments)])
    return found


def _read_stretch(file: BinaryIO, page_size: int, page_bytes: int) -> _Stretch:
    header = _SEGMENT.unpack(file.read(_SEGMENT.size))
    parent, root, stamp, hits, index, pages, count = header
    data = file.read(pages * page_size * TOKEN_BYTES)
    extras: dict[int, PageExtra] = {}
    for _ in range(count):
        page, offset, size = _EXTRA.unpack(file.read(_EXTRA.size))
        extras[page] = (file.read(size), offset)
    payloads = tuple(file.read(page_bytes) for _ in range(pages))
    nowhere = array("i", bytes(4 * pages))
    return _Stretch(Segment(parent, root, data, nowhere, stamp, hits, extras), index, payloads)


def _that_fit(stretches: Sequence[_Stretch], room: int) -> list[_Stretch]:
    """The most recently used ones. A parent was used no earlier than what continues it."""
    order = sorted(range(len(stretches)), key=lambda i: (-stretches[i].segment.stamp, i))
    kept: set[int] = set()
    for number in order:
        size = len(stretches[number].payloads)
        parent = stretches[number].segment.parent
        if size > room or (parent >= 0 and parent not in kept):
            continue
        room -= size
        kept.add(number)
    places = {number: place for place, number in enumerate(sorted(kept))}
    chosen = []
    for number in sorted(kept):
        old = stretches[number].segment
        parent = places[old.parent] if old.parent >= 0 else -1
        segment = Segment(parent, old.root, old.data, old.pages, old.stamp, old.hits, old.extras)
        chosen.append(_Stretch(segment, stretches[number].index, stretches[number].payloads))
    return chosen


def _adopt(group: CacheGroup, stretches: Sequence[_Stretch]) -> None:
    store = _store_of(group)
    segments = []
    for stretch in stretches:
        pages = group.pool.allocate(len(stretch.payloads))
        for page, payload in zip(pages, stretch.payloads, strict=True):
            store.write_page(page, payload)
        old = stretch.segment
        if isinstance(group, WindowGroup):
            group.adopt(old.root, old.data, stretch.index, pages[0], old.stamp, old.hits)
        segments.append(
            Segment(old.parent, old.root, old.data, pages, old.stamp, old.hits, old.extras)
        )
    if isinstance(group, PagedGroup):
        group.cache.adopt(segments)
