"""Sends one request and reads its stream, with the standard library alone."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, Final
from urllib.parse import urlsplit

import msgspec

from cacheaudit._typing import override
from cacheaudit.agent.probe.requests import Api
from cacheaudit.dialects.sse import SseDecoder, SseEvent
from cacheaudit.errors import UsageError

TIMEOUT: Final = 180.0
_PATHS: Final[Mapping[Api, str]] = {"messages": "messages", "chat": "chat/completions"}
_ERROR_BYTES: Final = 4_096
_END: Final = "[DONE]"


class Event(msgspec.Struct, frozen=True):
    """One event of a response.

    Attributes:
        at: Seconds since the request was sent.
        data: Its JSON; ``None`` for the end mark of Chat Completions.
    """

    at: float
    data: dict[str, Any] | None


class RequestFailedError(Exception):
    """A request got no usable response.

    Args:
        kind: What happened, in a word or two: ``HTTP 401``, ``timeout``, ``no_connection``.
        detail: The server's own word for it, where it is one.
    """

    def __init__(self, kind: str, detail: str | None = None) -> None:
        super().__init__(kind if detail is None else f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class Endpoint(msgspec.Struct, frozen=True):
    """Where requests go.

    Attributes:
        url: The whole address.
        api: What is spoken there.
        key: Credential; never shown, never stored.
        headers: Further headers.
        timeout: Seconds without a byte after which it is given up.
    """

    url: str
    api: Api
    key: str | None = None
    headers: Mapping[str, str] = {}
    timeout: float = TIMEOUT

    @override
    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    def events(self, body: Mapping[str, Any], tick: Callable[[], float]) -> Iterator[Event]:
        """Send a request once and yield what comes back, as it comes.

        Args:
            body: The request.
            tick: A clock that only rises, in seconds.

        Raises:
            RequestFailedError: There was no response, or it broke off, or it is an error.
        """
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked when it was made
            self.url, data=msgspec.json.encode(body), headers=self._head(), method="POST"
        )
        start = tick()
        try:
            opener = urllib.request.build_opener(_NoRedirect())
            with opener.open(request, timeout=self.timeout) as response:
                yield from _read(response, start, tick)
        except urllib.error.HTTPError as error:
            with error:
                raise RequestFailedError(f"HTTP {error.code}", _error_type(error)) from None
        except TimeoutError:
            raise RequestFailedError("timeout") from None
        except urllib.error.URLError as error:
            is_late = isinstance(error.reason, TimeoutError | socket.timeout)
            raise RequestFailedError("timeout" if is_late else "no_connection") from None
        except OSError as error:
            raise RequestFailedError("cut_off", type(error).__name__) from None
        except Exception as error:  # http.client raises kinds of its own for broken responses
            if type(error).__module__ != "http.client":
                raise
            raise RequestFailedError("cut_off", type(error).__name__) from None

    def _head(self) -> dict[str, str]:
        head = {"content-type": "application/json", "accept": "text/event-stream"}
        if self.api == "messages":
            head["anthropic-version"] = "2023-06-01"
            if self.key is not None:
                head["x-api-key"] = self.key
        elif self.key is not None:
            head["authorization"] = f"Bearer {self.key}"
        return {**head, **self.headers}


def endpoint(
    base_url: str,
    api: Api,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> Endpoint:
    """Make an endpoint of an address as SDKs take it.

    Args:
        base_url: ``https://api.anthropic.com``, ``https://api.openai.com/v1``, or the whole
            address of the method.
        api: What is spoken there.
        key: Credential.
        headers: Further headers.
        timeout: Seconds without a byte after which a request is given up.

    Raises:
        UsageError: It is no http address, or would carry a key in the clear beyond this machine.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"{base_url!r} is no address of an API.", "Give one like https://api.anthropic.com."
        )
    if parts.scheme == "http" and key is not None and not is_loopback(parts.hostname):
        raise UsageError(
            f"{parts.hostname} would get the key unencrypted.", "Use an https address."
        )
    path, bare = _PATHS[api], base_url.rstrip("/")
    if not bare.endswith(f"/{path}"):
        has_version = urlsplit(bare).path.rstrip("/").endswith("/v1")
        bare = f"{bare}/{path}" if has_version else f"{bare}/v1/{path}"
    return Endpoint(bare, api, key, dict(headers or {}), timeout)


def first_model(base_url: str, timeout: float) -> str | None:
    """Ask a server which models it has; ``None`` where it does not say.

    Raises:
        UsageError: It is no http address.
    """
    root = endpoint(base_url, "messages").url.removesuffix("/messages")
    try:
        with urllib.request.urlopen(f"{root}/models", timeout=timeout) as response:  # noqa: S310
            listed = msgspec.json.decode(response.read())
        name = listed["data"][0]["id"]
    except (OSError, msgspec.DecodeError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine."""
    return host in ("localhost", "::1") or bool(host and host.startswith("127."))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: a key must not be carried to where a server points."""

    @override
    def redirect_request(self, *_: Any) -> None:
        return None


def _read(response: IO[bytes], start: float, tick: Callable[[], float]) -> Iterator[Event]:
    kind = str(getattr(response, "headers", {}).get("content-type", ""))
    if "event-stream" not in kind:
        yield Event(tick() - start, _object(response.read()))
        return
    decoder = SseDecoder()
    for line in response:
        yield from _events(decoder.feed(line), tick() - start)
    yield from _events(decoder.close(), tick() - start)


def _events(sent: Iterable[SseEvent], at: float) -> Iterator[Event]:
    for event in sent:
        found = event.json()
        if found is not None or event.data.strip() == _END:
            yield Event(at, found)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise RequestFailedError("no_json") from None
    if not isinstance(value, dict):
        raise RequestFailedError("no_json")
    return value


def _error_type(error: urllib.error.HTTPError) -> str | None:
    """Return the kind of an error; its text may quote what was sent, or the key."""
    try:
        found = msgspec.json.decode(error.read(_ERROR_BYTES))
        kind = found["error"]["type"]
    except (msgspec.DecodeError, RecursionError, LookupError, TypeError, OSError):
        return None
    return kind if isinstance(kind, str) and kind.isidentifier() else None
