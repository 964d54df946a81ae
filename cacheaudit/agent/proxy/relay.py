"""Hands one request on to its upstream and gives back the response as it comes."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from cacheaudit._lazy import need
from cacheaudit.agent.attempt import failure_name
from cacheaudit.errors import MissingExtraError

# Headers that are about one connection, not about the message (RFC 9110, 7.6.1).
_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OURS: Final = frozenset({"host", "content-length", "expect"})
_TIMEOUT: Final = {"connect": 15.0, "read": 900.0, "write": 300.0, "pool": 60.0}
_KEPT_OPEN: Final = 32
Headers = list[tuple[str, str]]


class Response(msgspec.Struct, frozen=True):
    """The head of a response, and its body piece by piece.

    Attributes:
        status: HTTP status.
        headers: What concerns the message, in the server's order and spelling.
        length: Length of the body, where it was stated.
        pieces: The body's bytes as they came, neither decompressed nor joined.
        close: Ends the response, read or not.
    """

    status: int
    headers: Headers
    length: int | None
    pieces: Iterable[bytes]
    close: Any


class UnreachableError(Exception):
    """An upstream gave no response.

    Args:
        kind: What happened, in a word.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Relay:
    """Connections to upstreams, recorded.

    Args:
        record: Puts a recording transport in front of another one.

    Raises:
        MissingExtraError: No HTTP library is installed.
    """

    def __init__(self, record: Any) -> None:
        self._http = library()
        self._record = record
        self._lock = threading.Lock()
        self._transports: dict[str | None, Any] = {}
        self._is_closed = False

    def send(self, method: str, url: str, headers: Headers, body: bytes | None) -> Response:
        """Send a request once.

        Args:
            method: HTTP method.
            url: Whole address.
            headers: Headers as the client sent them.
            body: Its body; ``None``: it has none.

        Raises:
            UnreachableError: There is no response.
        """
        request = self._request(method, url, headers, body)
        transport = self._transport(url)
        try:
            response = transport.handle_request(request)
        except Exception as error:
            raise UnreachableError(failure_name(error)) from error
        if self._is_closed:
            # It came while everything was being closed: nobody else would close its connection.
            response.close()
            transport.close()
            raise UnreachableError("closed")
        raw = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in response.headers.raw
        ]
        length = response.headers.get("content-length")
        return Response(
            status=response.status_code,
            headers=message_headers(raw),
            length=int(length) if length is not None and length.isdecimal() else None,
            pieces=_pieces(response),
            close=response.close,
        )

    def close(self) -> None:
        """Close all connections; what is sent later is refused."""
        with self._lock:
            self._is_closed = True
            transports, self._transports = self._transports, {}
        for transport in transports.values():
            transport.close()

    def _request(self, method: str, url: str, headers: Headers, body: bytes | None) -> Any:
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        address = self._http.URL(f"{parts.scheme}://{parts.netloc}/")
        address = address.copy_with(raw_path=(path or "/").encode("latin-1"))
        kept = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in message_headers(headers)
            if name.lower() not in _OURS
        ]
        request = self._http.Request(method, address, headers=kept, content=body)
        request.extensions = {**request.extensions, "timeout": _TIMEOUT}
        return request

    def _transport(self, url: str) -> Any:
        """Return the connections that an address is reached by: straight, or by another proxy."""
        way = _proxy_of(url)
        # Making one takes some 20 ms, for the certificates: not once for each of many threads.
        with self._lock:
            if self._is_closed:
                raise UnreachableError("closed")
            if (known := self._transports.get(way)) is not None:
                return known
            limits = self._http.Limits(
                max_connections=None, max_keepalive_connections=_KEPT_OPEN, keepalive_expiry=30.0
            )
            inner = self._http.HTTPTransport(limits=limits, proxy=way)
            made = self._transports[way] = self._record(inner)
            return made


def library() -> Any:
    """Return the HTTP library that is installed.

    Raises:
        MissingExtraError: None is; the message says which command brings one.
    """
    try:
        return need("httpx", "httpx")
    except MissingExtraError:
        try:
            return importlib.import_module("httpx2")
        except ModuleNotFoundError:
            pass
        raise


def message_headers(headers: Sequence[tuple[str, str]]) -> Headers:
    """Leave out what concerns one connection only, and what ``Connection`` says is of that kind."""
    named = {
        word.strip().lower()
        for name, value in headers
        if name.lower() == "connection"
        for word in value.split(",")
    }
    return [(n, v) for n, v in headers if n.lower() not in _HOP and n.lower() not in named]


def _pieces(response: Any) -> Iterator[bytes]:
    for piece in response.stream:
        if piece:
            yield piece


def _proxy_of(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.hostname is None or proxy_bypass(parts.hostname):
        return None
    found = getproxies().get(parts.scheme)
    return found if isinstance(found, str) else None
