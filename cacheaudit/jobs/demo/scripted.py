"""A transport whose requests are real and whose answers are scripted.

A small local model cannot reason. Every request goes to the server as it is, is computed there and
comes back with its real usage and at its real pace; only what the model said is replaced, so that
a conversation takes the course that a capable model would give it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cacheaudit._lazy import need

Block = Mapping[str, Any]
# What the model is to say to a request; ``None``: what it says itself.
Script = Callable[[Mapping[str, Any]], Sequence[Block] | None]
_MOST_OUTPUT: Final = 16
_OWN_HEADERS: Final = frozenset({"content-length", "content-encoding", "transfer-encoding"})


def scripted_client(address: str, script: Script, most_output: int = _MOST_OUTPUT) -> Any:
    """Make an ``Anthropic`` client that asks a server and hears a script.

    Args:
        address: Of the server.
        script: Tells what the model says.
        most_output: Most tokens that the server generates for an answer.

    Raises:
        MissingExtraError: The SDK is not installed.
    """
    sdk = need("anthropic", "anthropic")
    http = need(sdk.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0], "httpx")
    transport = scripted_transport(http, script, most_output)
    return sdk.Anthropic(
        api_key="local",
        base_url=address,
        max_retries=0,
        http_client=http.Client(transport=transport),
    )


def scripted_transport(http: Any, script: Script, most_output: int = _MOST_OUTPUT) -> Any:
    """Make the transport, of a class of the HTTP library that the SDK was made for."""

    class Stream(http.SyncByteStream):  # type: ignore[misc]
        def __init__(self, response: Any, said: Sequence[Block]) -> None:
            self._response, self._said = response, said

        def __iter__(self) -> Iterator[bytes]:
            return rewritten(self._response.iter_bytes(), self._said)

        def close(self) -> None:
            self._response.close()

    class Transport(http.BaseTransport):  # type: ignore[misc]
        def __init__(self) -> None:
            self._inner = http.HTTPTransport()

        def handle_request(self, request: Any) -> Any:
            body = _object(request.read())
            # A request that only refreshes an entry or writes one generates next to nothing.
            is_asked = (body.get("max_tokens") or 0) > 1 and "messages" in body
            said = script(body) if is_asked else None
            if said is None:
                return self._inner.handle_request(request)
            limit = min(body["max_tokens"], most_output)
            response = self._inner.handle_request(_with_limit(http, request, body, limit))
            headers = [(k, v) for k, v in response.headers.items() if k not in _OWN_HEADERS]
            if response.status_code != 200:
                return response
            if body.get("stream"):
                return http.Response(200, headers=headers, stream=Stream(response, said))
            reply = _object(response.read())
            content = msgspec.json.encode({**reply, **spoken(said)})
            return http.Response(200, headers=headers, content=content)

        def close(self) -> None:
            self._inner.close()

    return Transport()


def spoken(said: Sequence[Block]) -> dict[str, Any]:
    """Return what a script changes in a response."""
    called = any(block.get("type") == "tool_use" for block in said)
    return {"content": list(said), "stop_reason": "tool_use" if called else "end_turn"}


def rewritten(pieces: Iterator[bytes], said: Sequence[Block]) -> Iterator[bytes]:
    """Put what the script says into an event stream; it begins when the server's own text does."""
    started = False
    for frame in _frames(pieces):
        event = _event(frame)
        kind = event.get("type")
        if kind == "content_block_delta" and not started:
            started = True
            yield from _blocks(said)
        elif kind == "message_delta":
            if not started:
                yield from _blocks(said)
            delta = {**event["delta"], "stop_reason": spoken(said)["stop_reason"]}
            yield _frame({**event, "delta": delta})
        elif not str(kind).startswith("content_block"):
            yield frame


def _blocks(said: Sequence[Block]) -> Iterator[bytes]:
    for index, block in enumerate(said):
        is_call = block.get("type") == "tool_use"
        if is_call:
            text = msgspec.json.encode(block["input"]).decode()
            empty: Block = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": text}
        else:
            empty = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        yield _frame({"type": "content_block_start", "index": index, "content_block": empty})
        yield _frame({"type": "content_block_delta", "index": index, "delta": delta})
        yield _frame({"type": "content_block_stop", "index": index})


def _frames(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Cut a stream into events, each with the empty line behind it."""
    left = b""
    for piece in pieces:
        left += piece.replace(b"\r\n", b"\n")
        while (end := left.find(b"\n\n")) >= 0:
            yield left[: end + 2]
            left = left[end + 2 :]
    if left:
        yield left


def _event(frame: bytes) -> dict[str, Any]:
    lines = (line for line in frame.split(b"\n") if line.startswith(b"data:"))
    return _object(b"".join(line.removeprefix(b"data:").strip() for line in lines))


def _frame(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))


def _with_limit(http: Any, request: Any, body: Mapping[str, Any], limit: int) -> Any:
    """Return a request that lets the server generate less; nothing that is cached changes."""
    headers = [(k, v) for k, v in request.headers.items() if k.lower() not in _OWN_HEADERS]
    content = msgspec.json.encode({**body, "max_tokens": limit})
    return http.Request(
        request.method, request.url, headers=headers, content=content, extensions=request.extensions
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
