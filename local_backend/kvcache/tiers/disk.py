"""Pages in files that outlive the process.

A file is named by the identity of its page and written beside its place, then moved there: another
reader sees all of it or nothing. It is not forced to the platter; what a power cut tears does not
fit its checksum and counts as a miss.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from local_backend.errors import RecordError, TierError
from local_backend.kvcache.tiers.base import TierCounters
from local_backend.kvcache.tiers.record import TIER_KEY_BYTES, decode, encode

_SUFFIX = ".kv"
_UNFINISHED = ".part"


class DiskTier:
    """A folder of records, bounded, least recently used out first.

    Records of other models may lie in the same folder; they are refused, never misread.

    Args:
        folder: Made where it is missing, readable by its owner alone.
        max_bytes: Room for records.
        name: In counters and events.

    Raises:
        TierError: The folder cannot be made or read.
    """

    def __init__(self, folder: Path, max_bytes: int, name: str = "disk") -> None:
        self.name = name
        self.folder = folder
        self.max_bytes = max_bytes
        self.counters = TierCounters()
        self.lock = threading.Lock()
        self._sizes: dict[bytes, int] = {}
        self._bytes = 0
        self._serial = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for key, size in self._scan():
                self._sizes[key] = size
                self._bytes += size
        except OSError as error:
            raise TierError(f"{folder} cannot be used: {error.strerror}") from error
        with self.lock:
            self._make_room(0)

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def used_bytes(self) -> int:
        """Room taken."""
        return self._bytes

    def _scan(self) -> Iterator[tuple[bytes, int]]:
        """What an earlier process left, oldest first; unfinished files are removed."""
        found: list[tuple[int, bytes, int]] = []
        for path in self.folder.glob("??/*"):
            if path.suffix == _UNFINISHED:
                path.unlink(missing_ok=True)
                continue
            key = _key_of(path)
            if key is not None:
                status = path.stat()
                found.append((status.st_mtime_ns, key, status.st_size))
        for _, key, size in sorted(found):
            yield key, size

    def path_of(self, key: bytes) -> Path:
        """Where the record of a page is."""
        name = key.hex()
        return self.folder / name[-2:] / (name + _SUFFIX)

    def held(self, keys: Sequence[bytes]) -> set[bytes]:
        """Those of the identities that are there now."""
        with self.lock:
            return self._sizes.keys() & set(keys)

    def load(self, key: bytes, layout: bytes) -> bytes | None:
        """The bytes of a page, proved whole; None where it is not there or not usable."""
        path = self.path_of(key)
        try:
            record = path.read_bytes()
            os.utime(path)
        except FileNotFoundError:
            self._forget(key)
            return None
        except OSError:
            self.counters.failures += 1
            return None
        try:
            payload = decode(record, key, layout)
        except RecordError as error:
            self.counters.refuse(error.reason)
            if error.reason in ("torn", "damaged"):
                self._remove(path)
                self._forget(key)
            return None
        with self.lock:
            if key in self._sizes:
                self._sizes[key] = self._sizes.pop(key)
            self.counters.loaded += 1
            self.counters.loaded_bytes += len(payload)
        return payload

    def _forget(self, key: bytes) -> None:
        with self.lock:
            self._bytes -= self._sizes.pop(key, 0)

    def store(self, key: bytes, layout: bytes, payload: bytes) -> bool:
        """Keep a page. False where there is no room for it, or the disk refuses."""
        record = encode(key, layout, payload)
        if len(record) > self.max_bytes:
            return False
        with self.lock:
            self._serial += 1
            serial = self._serial
            self._make_room(len(record) - self._sizes.get(key, 0))
        path = self.path_of(key)
        unfinished = path.with_name(f"{path.stem}.{os.getpid()}-{serial}{_UNFINISHED}")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            unfinished.write_bytes(record)
            unfinished.replace(path)
        except OSError:
            self._remove(unfinished)
            self.counters.failures += 1
            return False
        with self.lock:
            self._bytes += len(record) - self._sizes.pop(key, 0)
            self._sizes[key] = len(record)
            self.counters.stored += 1
            self.counters.stored_bytes += len(payload)
        return True

    def _make_room(self, size: int) -> None:
        while self._sizes and self._bytes + size > self.max_bytes:
            key = next(iter(self._sizes))
            self._bytes -= self._sizes.pop(key)
            self._remove(self.path_of(key))
            self.counters.evicted += 1

    @staticmethod
    def _remove(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()

    def close(self) -> None:
        """Nothing is open between calls; the files stay."""


def _key_of(path: Path) -> bytes | None:
    if path.suffix != _SUFFIX:
        return None
    try:
        key = bytes.fromhex(path.stem)
    except ValueError:
        return None
    return key if len(key) == TIER_KEY_BYTES else None
