"""Reads a recorded response, whole or streamed, of any API."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from cacheaudit.dialects.after import reported_cost, with_stop_reason
from cacheaudit.dialects.detect import normalise
from cacheaudit.dialects.diagnostics import miss_reason
from cacheaudit.dialects.sse import decode_sse
from cacheaudit.dialects.stream import StreamMerger
from cacheaudit.ingest._fields import decode, dig, mapping, text
from cacheaudit.ingest.unpack import aws_events, decompress, is_aws_stream
from cacheaudit.model.call import CallError, MissReason
from cacheaudit.model.usage import Usage

_MESSAGE_LIMIT: Final = 200
_KEYS: Final = re.compile(r"\b(?:sk|pk|rk|key|AKIA|AIza|Bearer )[-_A-Za-z0-9*.]{8,}")
_USAGE_PATHS: Final = (
    ("usage",),
    ("usageMetadata",),
    ("usage_metadata",),
    ("message", "usage"),
    ("response", "usage"),
    ("response", "usageMetadata"),
    ("metadata", "usage"),
)
_EVENT_KEYS: Final = frozenset(
    {"choices", "candidates", "usageMetadata", "metadata", "messageStart", "messageStop", "chunk"}
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a response says about its call.

    Attributes:
        usage: What it consumed.
        id: The provider's id of it.
        model: Model that answered.
        stop_reason: Why it ended.
        diagnostics: The provider's word on a cache miss.
        error: The error that it reports.
        cost: The cost that it states.
        content: Content blocks, for the thread that they belong to.
    """

    usage: Usage | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    diagnostics: MissReason | None = None
    error: CallError | None = None
    cost: Decimal | None = None
    content: tuple[Any, ...] = ()


def read_answer(response: object, request: Mapping[str, Any] | None = None) -> Answer:
    """Read a response in whatever form a recorder kept it.

    Args:
        response: An object, a list of events, or the body as text or bytes: JSON, server-sent
            events, or an AWS event stream, compressed or not.
        request: Body of the request, which tells what null diagnostics mean.

    Raises:
        UnpackError: The body cannot be unpacked.
    """
    if isinstance(response, bytes):
        return _from_bytes(decompress(response), request)
    if isinstance(response, str):
        return _from_bytes(response.encode(), request)
    if isinstance(response, list):
        return merged((e for e in response if isinstance(e, dict)), request)
    if isinstance(response, Mapping):
        events = response.get("events", response.get("stream"))
        if isinstance(events, list) and not raw_usage(response):
            return merged((_event(e) for e in events), request)
        return _from_object(response, request)
    return Answer()


def merged(events: Iterable[Mapping[str, Any]], request: Mapping[str, Any] | None) -> Answer:
    """Put the decoded events of a stream together."""
    merger = StreamMerger(request)
    for event in events:
        merger.feed(event)
    return _result(merger)


def raw_usage(response: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Find the usage record in a response of any API."""
    for path in _USAGE_PATHS:
        found = dig(response, *path)
        if isinstance(found, Mapping) and found:
            return found
    return None


def is_event_stream(data: bytes) -> bool:
    """Whether bytes begin like server-sent events."""
    head = data[:512].removeprefix(b"\xef\xbb\xbf").lstrip()
    return head.startswith((b"event:", b"data:", b"id:", b"retry:")) or (
        head.startswith(b":") and b"\ndata:" in data[:4096]
    )


def _from_bytes(data: bytes, request: Mapping[str, Any] | None) -> Answer:
    if is_aws_stream(data):
        return merged(aws_events(data), request)
    if is_event_stream(data):
        merger = StreamMerger(request)
        for sent in decode_sse([data]):
            event = sent.json()
            if event is not None:
                merger.feed(event, sent.event)
        return _result(merger)
    value = decode(data)
    if value is None and data.lstrip()[:1] == b"{":
        lines = [decode(line) for line in data.splitlines() if line.strip()]
        events = [line for line in lines if isinstance(line, dict)]
        return merged(events, request) if len(events) > 1 else Answer()
    return read_answer(value, request) if isinstance(value, dict | list) else Answer()


def _event(value: Any) -> Mapping[str, Any]:
    """Unwrap an event that a recorder kept as ``{"event": …, "data": …}`` or as text."""
    record = mapping(value)
    if "data" in record and not _EVENT_KEYS & record.keys() and record.get("type") in (None, ""):
        return mapping(record["data"])
    return record


def _result(merger: StreamMerger) -> Answer:
    found = merger.result()
    usage = found.normalised()
    if usage is not None:
        usage = with_stop_reason(usage, found.stop_reason, has_content=bool(found.content))
    return Answer(
        usage=usage,
        id=found.id,
        model=found.model,
        stop_reason=found.stop_reason,
        diagnostics=found.diagnostics,
        error=None if found.error is None else _short(found.error),
        cost=None if found.usage is None else reported_cost(found.usage),
        content=found.content,
    )


def _from_object(response: Mapping[str, Any], request: Mapping[str, Any] | None) -> Answer:
    raw = raw_usage(response)
    usage = normalise(raw) if raw else None
    stop = _stop_reason(response)
    content = _content(response)
    if usage is not None:
        usage = with_stop_reason(
            usage, stop, has_content="content" not in response or content != ()
        )
    inner = mapping(response.get("response"))
    return Answer(
        usage=usage,
        id=_first(response, inner, "id", "responseId", "response_id"),
        model=_first(response, inner, "model", "modelVersion"),
        stop_reason=stop,
        diagnostics=miss_reason(response, request),
        error=_error(response),
        cost=reported_cost(raw) if raw else None,
        content=content,
    )


def _first(outer: Mapping[str, Any], inner: Mapping[str, Any], *names: str) -> str | None:
    for record in (outer, inner):
        for name in names:
            if found := text(record.get(name)):
                return found
    return None


def _stop_reason(response: Mapping[str, Any]) -> str | None:
    for name in ("stop_reason", "stopReason", "finish_reason"):
        if found := text(response.get(name)):
            return found
    for name, inner in (("choices", "finish_reason"), ("candidates", "finishReason")):
        items = response.get(name)
        if isinstance(items, list) and items and isinstance(items[0], Mapping):
            return text(items[0].get(inner))
    return text(response.get("status"))


def _content(response: Mapping[str, Any]) -> tuple[Any, ...]:
    for path in (("content",), ("output",), ("output", "message", "content")):
        found = dig(response, *path)
        if isinstance(found, list):
            return tuple(found)
    choices = response.get("choices")
    if isinstance(choices, list) and choices:
        message = dig(choices[0], "message")
        return (message,) if isinstance(message, Mapping) else ()
    return ()


def _error(response: Mapping[str, Any]) -> CallError | None:
    details = response.get("error")
    if isinstance(details, list) and details:
        details = details[0]
    if not details:
        return None
    record = mapping(details)
    code = record.get("status_code", record.get("code", record.get("status")))
    kind = text(record.get("type")) or text(record.get("status")) or text(record.get("code"))
    message = text(record.get("message")) or text(details)
    return _short(CallError(kind, code if type(code) is int else None, message))


def _short(error: CallError) -> CallError:
    return CallError(error.type, error.status, short_message(error.message))


def short_message(message: str | None) -> str | None:
    """Cut an error's message and blot out keys: some quote the whole request, or its key."""
    return None if message is None else _KEYS.sub("[key]", message[:_MESSAGE_LIMIT])
