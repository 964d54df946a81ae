"""Sends requests to an engine and takes what it reports; needs nothing but the standard library."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from cacheaudit.errors import UsageError

NOW: Final = "x-cacheaudit-now"
BEGAN: Final = "x-cacheaudit-began"
WORKSPACE: Final = "x-cacheaudit-workspace"
_VERSION: Final = "2023-06-01"
_LARGEST: Final = 64 << 20


class Failure(msgspec.Struct, frozen=True):
    """A request that got no usable response.

    Attributes:
        kind: ``no_connection``, ``timeout``, ``cut_off``, ``no_json``, or the server's own type.
        status: HTTP status, where there was one.
        detail: The server's own words, where it is on this machine.
    """

    kind: str
    status: int | None = None
    detail: str | None = None


class Reply(msgspec.Struct, frozen=True):
    """A response.

    Attributes:
        json: Its body.
        seconds: From sending to having all of it.
    """

    json: dict[str, Any]
    seconds: float


class Server(msgspec.Struct, frozen=True):
    """What a server says of itself; empty for one that is not this project's.

    Attributes:
        clock: ``manual``, ``system``, or ``None``.
        rules: Its cache rules.
        model: Its model.
        context_length: Most tokens of a conversation.
    """

    clock: str | None = None
    rules: str | None = None
    model: str | None = None
    context_length: int | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is this project's server."""
        return self.clock is not None


class Client:
    """Talks to one server over one connection that is opened anew where it broke.

    Args:
        base_url: ``http://127.0.0.1:8377``, ``https://api.anthropic.com``, with or without ``/v1``.
        tick: A clock that only rises, in seconds.
        key: Credential; never shown, never stored.
        timeout: Seconds without a byte after which a request is given up.

    Raises:
        UsageError: The address is none, or a key would go over the net in the clear.
    """

    def __init__(
        self,
        base_url: str,
        tick: Callable[[], float],
        *,
        key: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{base_url!r} is no address of a server.", "Give one like http://127.0.0.1:8377."
            )
        self.is_near = is_near(parts.hostname)
        if parts.scheme == "http" and key is not None and not self.is_near:
            raise UsageError(
                f"{parts.hostname} would get the key unencrypted.", "Use an https address."
            )
        self._root = parts.path.rstrip("/").removesuffix("/messages").removesuffix("/v1")
        self._tick = tick
        self._key = key
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=timeout, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(
                parts.hostname, parts.port, timeout=timeout
            )

    def describe(self) -> Server | Failure:
        """Ask the server what it is; a server of somebody else's describes nothing."""
        found = self._ask("GET", "/health", None, {})
        if isinstance(found, Failure):
            return found if found.status is None and found.kind != "no_json" else Server()
        try:
            return msgspec.convert(found.json, Server)
        except msgspec.ValidationError:
            return Server()

    def count(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> list[int] | None:
        """Ask for the tokens of each content block; ``None`` where the server does not tell."""
        kept = {k: v for k, v in body.items() if k not in ("max_tokens", "temperature")}
        found = self._ask("POST", "/v1/messages/count_tokens", kept, headers)
        if isinstance(found, Failure):
            return None
        counts = found.json.get("content_tokens")
        if isinstance(counts, list) and all(isinstance(n, int) for n in counts):
            return counts
        return None

    def create(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Reply | Failure:
        """Send a request once."""
        return self._ask("POST", "/v1/messages", body, headers)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> Reply | Failure:
        data = None if body is None else msgspec.json.encode(body)
        head = {"accept": "application/json", "anthropic-version": _VERSION, **headers}
        if data is not None:
            head["content-type"] = "application/json"
        if self._key is not None:
            head["x-api-key"] = self._key
        start = self._tick()
        try:
            self._connection.request(method, self._root + path, data, head)
            response = self._connection.getresponse()
            content = response.read(_LARGEST)
        except TimeoutError:
            self._connection.close()
            return Failure("timeout")
        except (ConnectionRefusedError, OSError) as error:
            self._connection.close()
            is_closed = isinstance(error, ConnectionResetError | BrokenPipeError)
            return Failure("cut_off" if is_closed else "no_connection")
        except http.client.HTTPException:
            self._connection.close()
            return Failure("cut_off")
        value = _decoded(content)
        if response.status != 200:
            return self._failed(response.status, value)
        if value is None:
            return Failure("no_json", response.status)
        return Reply(value, self._tick() - start)

    def _failed(self, status: int, value: dict[str, Any] | None) -> Failure:
        error = (value or {}).get("error")
        kind = error.get("type") if isinstance(error, dict) else None
        text = error.get("message") if isinstance(error, dict) else None
        # Elsewhere an error may quote what was sent, or the key.
        shown = text if self.is_near and isinstance(text, str) else None
        return Failure(kind if isinstance(kind, str) else "error", status, shown)


def is_near(host: str | None) -> bool:
    """Whether a host is this machine."""
    return host in ("localhost", "::1") or bool(host and host.startswith("127."))


def _decoded(content: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
