"""The process that keeps pages for engines: ``python -m local_backend.kvcache.tiers.serve``.

It prints one line with its socket when it is ready, and ends on an interrupt or a termination.
"""

from __future__ import annotations

import argparse
import os
import signal
import socketserver
import sys
import threading
from pathlib import Path

from local_backend._typing import override
from local_backend.errors import TierError
from local_backend.kvcache.tiers.host import HostTier
from local_backend.kvcache.tiers.record import TIER_KEY_BYTES
from local_backend.kvcache.tiers.wire import Word, receive, send


class _Handler(socketserver.BaseRequestHandler):
    server: PageServer

    @override
    def handle(self) -> None:
        while True:
            try:
                frame = receive(self.request)
            except (TierError, OSError):
                return
            if frame is None:
                return
            word, body = self.server.answer(*frame)
            try:
                send(self.request, word, body)
            except OSError:
                return


class PageServer(socketserver.ThreadingUnixStreamServer):
    """Keeps records for whoever connects to a socket that only its owner can open.

    Args:
        path: The socket; one left by a dead process is replaced.
        max_bytes: Room for records.
    """

    daemon_threads = True

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.tier = HostTier(max_bytes)
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            super().__init__(str(path), _Handler)
        finally:
            os.umask(before)

    def answer(self, word: Word, body: bytes) -> tuple[Word, bytes]:
        """What to say to one question."""
        if word is Word.COUNT:
            return Word.YES, len(self.tier).to_bytes(8, "little")
        if word is Word.HELD and len(body) % TIER_KEY_BYTES == 0:
            size = TIER_KEY_BYTES
            keys = [body[at : at + size] for at in range(0, len(body), size)]
            found = self.tier.held(keys)
            return Word.YES, bytes(key in found for key in keys)
        if word is Word.LOAD and len(body) == TIER_KEY_BYTES:
            record = self.tier.get_record(body)
            return (Word.NO, b"") if record is None else (Word.YES, record)
        if word is Word.STORE and len(body) > TIER_KEY_BYTES:
            kept = self.tier.put_record(body[:TIER_KEY_BYTES], body[TIER_KEY_BYTES:])
            return (Word.YES if kept else Word.NO), b""
        return Word.BAD, b""


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to end."""
    parser = argparse.ArgumentParser(description="Keeps KV pages for local engines.")
    parser.add_argument("socket", type=Path, help="path of the socket to listen on")
    parser.add_argument("--max-bytes", type=int, default=1 << 30, help="room for pages")
    options = parser.parse_args(arguments)
    with PageServer(options.socket, options.max_bytes) as server:

        def stop(*_: object) -> None:
            # shutdown() waits for the loop that this very thread runs.
            threading.Thread(target=server.shutdown, daemon=True).start()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        sys.stdout.write(f"keeping pages at {options.socket}\n")
        sys.stdout.flush()
        server.serve_forever(poll_interval=0.1)
    options.socket.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
