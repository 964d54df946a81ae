"""Listens on loopback and relays what comes, one thread a connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import msgspec

from cacheaudit._typing import override
from cacheaudit.agent.probe.http import is_loopback
from cacheaudit.agent.proxy.relay import Relay, Response, UnreachableError
from cacheaudit.agent.proxy.routes import Routes

if TYPE_CHECKING:
    from cacheaudit.agent.audit import CacheAudit

LOOPBACK: Final = "127.0.0.1"
_LONGEST_BODY: Final = 512 << 20
_PIECE: Final = 1 << 20
_NO_BODY: Final = frozenset({204, 304})


class RecordingProxy:
    """A proxy for the clients of this machine.

    Args:
        audit: Records what goes through; it is not closed with the proxy.
        routes: Where requests go.
        port: Port to listen on; 0: a free one.
        session: Session of the calls; ``None``: what each request says.

    Attributes:
        address: Where it listens.

    Raises:
        MissingExtraError: No HTTP library is installed.
        OSError: The port is taken.
    """

    def __init__(
        self,
        audit: CacheAudit,
        routes: Routes | None = None,
        port: int = 0,
        session: str | None = None,
    ) -> None:
        self._relay = Relay(audit.transport)

        def scope() -> AbstractContextManager[Any]:
            return contextlib.nullcontext() if session is None else audit.session(session)

        self._server = _Server((LOOPBACK, port), self._relay, routes or Routes(), scope)
        self.address = f"http://{LOOPBACK}:{self._server.server_address[1]}"
        self._thread: threading.Thread | None = None

    def serve(self) -> None:
        """Serve until :meth:`close` is called from another thread, or an exception ends it."""
        self._server.serve_forever(poll_interval=0.2)

    def start(self) -> Self:
        """Serve in a thread of its own."""
        self._thread = threading.Thread(target=self.serve, name="cacheaudit-proxy", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop listening and end every connection; what was recorded of it is kept."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join(5)
            self._thread = None
        self._server.server_close()
        self._server.hang_up()
        self._relay.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(
        self,
        place: tuple[str, int],
        relay: Relay,
        routes: Routes,
        scope: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.relay = relay
        self.routes = routes
        self.scope = scope
        self._open: set[socket.socket] = set()
        self._ended = threading.Condition()
        super().__init__(place, _Handler)

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember a connection before its thread runs: one that is not known is not ended."""
        with self._ended:
            self._open.add(request)
        super().process_request(request, client_address)

    @override
    def shutdown_request(self, request: Any) -> None:
        """Forget it once it is closed."""
        super().shutdown_request(request)
        with self._ended:
            self._open.discard(request)
            self._ended.notify_all()

    def hang_up(self, timeout: float = 5.0) -> None:
        """End the connections that are open, and wait until their threads have."""
        with self._ended:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._ended.wait_for(lambda: not self._open, timeout)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: what a client breaks off is its own affair."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 900
    server: _Server

    @override
    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: paths and headers are the client's."""

    def relay(self) -> None:
        """Hand the request on, and the response back."""
        try:
            body = self._body()
        except ValueError as error:
            self._refuse(400, "invalid_request_error", str(error))
            return
        host = urlsplit(f"//{self.headers.get('host', LOOPBACK)}").hostname
        if not is_loopback(host):
            # A page in a browser that calls itself by another name must not use this proxy.
            self._refuse(403, "permission_error", "this proxy serves clients of its machine only")
            return
        if not self.path.startswith("/"):
            why = "this is no proxy for HTTP_PROXY; give its address as the API's base URL"
            self._refuse(400, "invalid_request_error", why)
            return
        if self.headers.get("upgrade"):
            self._refuse(501, "api_error", "this proxy passes on HTTP only; use it without upgrade")
            return
        heads = {name.lower(): value for name, value in self.headers.items()}
        target = self.server.routes.target(self.path, heads)
        try:
            with self.server.scope():
                response = self.server.relay.send(
                    self.command, target, list(self.headers.items()), body
                )
        except UnreachableError as error:
            status = 504 if error.kind == "timeout" else 502
            self._refuse(status, "api_error", f"the upstream gave no response ({error.kind})")
            return
        try:
            self._answer(response)
        except Exception:
            # Cut off here, so that the client sees a cut and not an end.
            self.close_connection = True
        finally:
            with contextlib.suppress(Exception):
                response.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = relay  # noqa: N815 - asked for by name
    do_OPTIONS = do_HEAD = relay  # noqa: N815

    def _body(self) -> bytes | None:
        """Read the request's body.

        Raises:
            ValueError: It is framed wrongly or too long.
        """
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            return b"".join(self._chunks())
        text = self.headers.get("content-length")
        if text is None:
            return None
        if not text.isdecimal() or int(text) > _LONGEST_BODY:
            self.close_connection = True
            raise ValueError("the body's length is no number, or too large")
        left, pieces = int(text), list[bytes]()
        while left:
            piece = self.rfile.read(min(left, _PIECE))
            if not piece:
                self.close_connection = True
                raise ValueError("the body is shorter than its length says")
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _chunks(self) -> list[bytes]:
        found: list[bytes] = []
        whole = 0
        while True:
            line = self.rfile.readline(1024).split(b";")[0].strip()
            try:
                size = int(line, 16)
            except ValueError:
                size = -1
            whole += max(0, size)
            if size < 0 or whole > _LONGEST_BODY:
                self.close_connection = True
                raise ValueError("the body's chunks are damaged, or too large")
            if not size:
                break
            found.append(self.rfile.read(size))
            self.rfile.readline(8)
        while self.rfile.readline(65_536).strip():
            pass
        return found

    def _answer(self, response: Response) -> None:
        """Write a response as it comes."""
        has_body = self.command != "HEAD" and response.status not in _NO_BODY
        is_chunked = has_body and response.length is None and self.request_version != "HTTP/1.0"
        self.send_response_only(response.status)
        for name, value in response.headers:
            self.send_header(name, value)
        if is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif has_body and response.length is None:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if not has_body:
            return
        for piece in response.pieces:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
        if is_chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, status: int, kind: str, why: str) -> None:
        """Answer in the upstream's place, in the shape of its errors."""
        error = {"type": kind, "message": f"cacheaudit proxy: {why}"}
        body = msgspec.json.encode({"type": "error", "error": error})
        with contextlib.suppress(OSError):
            self.send_response_only(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
