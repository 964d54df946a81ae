"""Pages in another process of this machine, over a local socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from pathlib import Path

from local_backend.errors import RecordError, TierError
from local_backend.kvcache.tiers.base import TierCounters
from local_backend.kvcache.tiers.record import decode, encode
from local_backend.kvcache.tiers.wire import Word, receive, send


class PeerTier:
    """A connection to ``python -m local_backend.kvcache.tiers.serve``.

    A peer that is gone, hangs or talks nonsense is a miss and a counted failure; the next call
    tries to connect again.

    Args:
        path: The socket.
        timeout_s: Longest wait for one answer.
        name: In counters and events.
    """

    def __init__(self, path: Path, timeout_s: float = 2.0, name: str = "peer") -> None:
        self.name = name
        self.path = path
        self.counters = TierCounters()
        self.lock = threading.Lock()
        self._timeout_s = timeout_s
        self._connection: socket.socket | None = None

    def _ask(self, word: Word, body: bytes) -> tuple[Word, bytes] | None:
        """One question and its answer; None where there is none."""
        with self.lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                send(self._connection, word, body)
                answer = receive(self._connection)
            except (OSError, TierError):
                answer = None
            if answer is None or answer[0] is Word.BAD:
                self.counters.failures += 1
                self._hang_up()
                return None
            return answer

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self._timeout_s)
            connection.connect(str(self.path))
        except OSError:
            connection.close()
            raise
        return connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def held(self, keys: Sequence[bytes]) -> set[bytes]:
        """Those of the identities that are there now, asked in one go."""
        if not keys:
            return set()
        answer = self._ask(Word.HELD, b"".join(keys))
        if answer is None or len(answer[1]) != len(keys):
            return set()
        return {key for key, flag in zip(keys, answer[1], strict=True) if flag}

    def load(self, key: bytes, layout: bytes) -> bytes | None:
        """The bytes of a page, proved whole; None where it is not there or not usable."""
        answer = self._ask(Word.LOAD, key)
        if answer is None or answer[0] is not Word.YES:
            return None
        try:
            payload = decode(answer[1], key, layout)
        except RecordError as error:
            self.counters.refuse(error.reason)
            return None
        self.counters.loaded += 1
        self.counters.loaded_bytes += len(payload)
        return payload

    def store(self, key: bytes, layout: bytes, payload: bytes) -> bool:
        """Keep a page. False where the peer has no room for it or is gone."""
        answer = self._ask(Word.STORE, key + encode(key, layout, payload))
        if answer is None or answer[0] is not Word.YES:
            return False
        with self.lock:
            self.counters.stored += 1
            self.counters.stored_bytes += len(payload)
        return True

    def count(self) -> int | None:
        """How many pages the peer keeps; None where it does not answer."""
        answer = self._ask(Word.COUNT, b"")
        return None if answer is None else int.from_bytes(answer[1], "little")

    def close(self) -> None:
        """Hang up; the peer keeps what it has."""
        with self.lock:
            self._hang_up()
