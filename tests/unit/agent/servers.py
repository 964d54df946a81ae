"""A scripted provider: canned answers over a mock transport or a real loopback server.

It keeps what it was sent, byte for byte, and what it counted.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic

MODEL = "claude-opus-5"
# The SDK's own HTTP library: httpx2 since 2.0, httpx before.
HTTP: Any = importlib.import_module("httpx2" if int(anthropic.__version__[0]) >= 2 else "httpx")
KEY = "sk-ant-not-a-real-key-0123456789"


class Reply:
    """One answer of the server.

    Args:
        body: JSON, text or bytes.
        status: HTTP status.
        frames: Pieces of an event stream, instead of ``body``.
        headers: More headers.
        cut: End the stream without its proper end.
    """

    def __init__(
        self,
        body: Any = None,
        status: int = 200,
        frames: list[bytes] | None = None,
        headers: dict[str, str] | None = None,
        *,
        cut: bool = False,
    ) -> None:
        kind = "text/event-stream" if frames is not None else "application/json"
        self.headers = {"content-type": kind, **(headers or {})}
        self.status = status
        self.frames = frames
        self.cut = cut
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()


def usage(read: int = 2000, write: int = 300, fresh: int = 40, output: int = 12) -> dict[str, Any]:
    return {
        "input_tokens": fresh,
        "output_tokens": output,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        "cache_creation": {"ephemeral_5m_input_tokens": write, "ephemeral_1h_input_tokens": 0},
    }


def message(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": "hello there"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage(),
        **changes,
    }


def frame(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def events(number: int = 1, **changes: Any) -> list[bytes]:
    """Return the event stream of a message, one piece an event."""
    whole = message(number, **changes)
    start = {**whole, "content": [], "stop_reason": None}
    start["usage"] = {**whole["usage"], "output_tokens": 1}
    block = {"type": "text", "text": ""}
    text = "".join(b["text"] for b in whole["content"] if b["type"] == "text")
    pieces = [text[i : i + 4] for i in range(0, len(text), 4)]
    return [
        frame("message_start", {"type": "message_start", "message": start}),
        frame(
            "content_block_start",
            {"type": "content_block_start", "index": 0, "content_block": block},
        ),
        frame("ping", {"type": "ping"}),
        *(
            frame(
                "content_block_delta",
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "text_delta", "text": p},
                },
            )
            for p in pieces
        ),
        frame("content_block_stop", {"type": "content_block_stop", "index": 0}),
        frame(
            "message_delta",
            {
                "type": "message_delta",
                "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None},
                "usage": {"output_tokens": whole["usage"]["output_tokens"]},
            },
        ),
        frame("message_stop", {"type": "message_stop"}),
    ]


def fitting(body: dict[str, Any], number: int) -> Reply:
    """Answer a Messages request in the way that it asks for."""
    if body.get("stream"):
        return Reply(frames=events(number))
    return Reply(message(number))


class Script:
    """The server's side: answers in order, then ``fitting`` ones; keeps what it was sent."""

    def __init__(self, *replies: Reply | Exception | Callable[[bytes], Reply]) -> None:
        self._replies = list(replies)
        self._lock = threading.Lock()
        self.sent: list[bytes] = []
        self.heads: list[dict[str, str]] = []
        self.paths: list[str] = []

    def answer(self, path: str, head: dict[str, str], body: bytes) -> Reply:
        with self._lock:
            self.sent.append(body)
            self.heads.append({k.lower(): v for k, v in head.items()})
            self.paths.append(path)
            number = len(self.sent)
            reply = self._replies.pop(0) if self._replies else None
        if isinstance(reply, Exception):
            raise reply
        if callable(reply):
            return reply(body)
        if reply is not None:
            return reply
        return fitting(json.loads(body) if body else {}, number)


class Pieces(HTTP.SyncByteStream, HTTP.AsyncByteStream):
    """A response body in pieces, for readers of both kinds."""

    def __init__(self, pieces: list[bytes], *, cut: bool = False) -> None:
        self._pieces = pieces
        self._cut = cut
        self.closed = 0
        self.given = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.given += 1
            yield piece
        if self._cut:
            raise HTTP.RemoteProtocolError(
                "peer closed connection without sending complete message"
            )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1


def transport(script: Script, http: Any = HTTP) -> Any:
    """Return a mock transport of the SDK's library that plays a script."""

    def handle(request: Any) -> Any:
        body = request.content
        reply = script.answer(request.url.path, dict(request.headers), body)
        if reply.frames is not None:
            stream = Pieces(reply.frames, cut=reply.cut)
            return http.Response(reply.status, headers=reply.headers, stream=stream)
        return http.Response(reply.status, headers=reply.headers, content=reply.body)

    return http.MockTransport(handle)


def client(script: Script, **settings: Any) -> anthropic.Anthropic:
    http = HTTP.Client(transport=transport(script))
    return anthropic.Anthropic(api_key=KEY, http_client=http, **settings)


def async_client(script: Script, **settings: Any) -> anthropic.AsyncAnthropic:
    http = HTTP.AsyncClient(transport=transport(script))
    return anthropic.AsyncAnthropic(api_key=KEY, http_client=http, **settings)


@contextlib.contextmanager
def loopback(script: Script) -> Iterator[str]:
    """Serve a script on a port of this machine; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            self._serve(self.rfile.read(int(self.headers["content-length"])))

        def _serve(self, body: bytes) -> None:
            reply = script.answer(self.path, dict(self.headers), body)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.frames is None:
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
                return
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in reply.frames:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            if reply.cut:
                self.close_connection = True
                return
            self.wfile.write(b"0\r\n\r\n")

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        # The default of 5 turns away what comes at once: connections are reset or wait for seconds.
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def gzipped(frames: list[bytes]) -> list[bytes]:
    """Compress a stream and cut it into odd pieces."""
    data = gzip.compress(b"".join(frames))
    return [data[i : i + 17] for i in range(0, len(data), 17)]
