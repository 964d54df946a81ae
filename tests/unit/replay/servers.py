"""A small HTTP server of a test: answers from a table and keeps what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]


class Seen(list[tuple[str, Mapping[str, str], Any]]):
    """Path, headers and body of each request."""


@contextmanager
def serving(answers: Mapping[str, Answer]) -> Iterator[tuple[str, Seen]]:
    """Serve ``path → (status, JSON or bytes)``; other paths are not found."""
    seen = Seen()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self, body: Any) -> None:
            seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, value = answers.get(self.path, (404, {"error": {"type": "not_found_error"}}))
            if status == 0:
                self.close_connection = True
                return
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
