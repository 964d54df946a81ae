"""Pages in the memory of this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from local_backend.errors import RecordError
from local_backend.kvcache.tiers.base import TierCounters
from local_backend.kvcache.tiers.record import decode, encode


class HostTier:
    """A bounded dictionary, least recently used records out first.

    Args:
        max_bytes: Room for records, headers included.
        name: In counters and events.
    """

    def __init__(self, max_bytes: int, name: str = "host") -> None:
        self.name = name
        self.max_bytes = max_bytes
        self.counters = TierCounters()
        self.lock = threading.Lock()
        self._records: dict[bytes, bytes] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def used_bytes(self) -> int:
        """Room taken."""
        return self._bytes

    def held(self, keys: Sequence[bytes]) -> set[bytes]:
        """Those of the identities that are there now."""
        with self.lock:
            return self._records.keys() & set(keys)

    def get_record(self, key: bytes) -> bytes | None:
        """A record as it was stored; counts as a use."""
        with self.lock:
            record = self._records.pop(key, None)
            if record is not None:
                self._records[key] = record
            return record

    def put_record(self, key: bytes, record: bytes) -> bool:
        """Keep a record as it is."""
        if len(record) > self.max_bytes:
            return False
        with self.lock:
            self._drop(key)
            while self._bytes + len(record) > self.max_bytes:
                self._drop(next(iter(self._records)))
                self.counters.evicted += 1
            self._records[key] = record
            self._bytes += len(record)
        return True

    def _drop(self, key: bytes) -> None:
        record = self._records.pop(key, None)
        if record is not None:
            self._bytes -= len(record)

    def load(self, key: bytes, layout: bytes) -> bytes | None:
        """The bytes of a page, proved whole; None where it is not there or not usable."""
        record = self.get_record(key)
        if record is None:
            return None
        try:
            payload = decode(record, key, layout)
        except RecordError as error:
            self.counters.refuse(error.reason)
            return None
        self.counters.loaded += 1
        self.counters.loaded_bytes += len(payload)
        return payload

    def store(self, key: bytes, layout: bytes, payload: bytes) -> bool:
        """Keep a page. False where there is no room for it."""
        if not self.put_record(key, encode(key, layout, payload)):
            return False
        with self.lock:
            self.counters.stored += 1
            self.counters.stored_bytes += len(payload)
        return True

    def close(self) -> None:
        """Forget everything."""
        with self.lock:
            self._records.clear()
            self._bytes = 0
