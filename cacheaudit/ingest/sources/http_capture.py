"""Raw captures of requests and responses: JSON lines, JSON documents, or one recorded stream.

Proxies and loggers of every kind write these, so names vary: the request may stand under ``body``,
``request`` or ``request_body``, as the body itself or wrapped with its headers. A line may also
*be* a request body or a response. Nothing but bodies, times and the headers that name session and
client is read; credentials never leave this module.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from cacheaudit.dialects.sse import LONGEST, SseDecoder, SseEvent, decode_sse
from cacheaudit.ingest._fields import Record, is_absent, mapping, sequence, text
from cacheaudit.ingest.answers import is_event_stream, raw_usage
from cacheaudit.ingest.documents import as_utf8, count_unreadable, json_records, read_whole
from cacheaudit.ingest.exchange import Exchange, Exchanges
from cacheaudit.ingest.unpack import (
    UnpackError,
    decompress,
    header,
    json_object,
    looks_like_text,
    unbase64,
)
from cacheaudit.model.call import Call, Span
from cacheaudit.model.ports import Capabilities, Head, ProblemSink

_REQUEST: Final = ("request", "request_body", "requestBody", "req", "body", "payload", "input")
_RESPONSE: Final = ("response", "response_body", "responseBody", "res", "resp", "reply")
_BODY: Final = ("body", "json", "data", "content", "text", "payload", "events", "chunks", "sse")
_ENVELOPE: Final = frozenset({"method", "url", "uri", "headers", "status", "status_code", "path"})
_PROMPT: Final = ("messages", "contents", "input")
_STARTS: Final = (
    "started_at", "start", "start_time", "startTime", "request_time", "requested_at",
    "request_timestamp", "request_at", "started",
)  # fmt: skip
_ENDS: Final = (
    "ended_at", "end", "end_time", "endTime", "completed_at", "finished_at", "response_time",
    "response_timestamp", "received_at", "ended",
)  # fmt: skip
_STAMPS: Final = ("ts", "timestamp", "time", "created_at", "date")
_DURATIONS: Final = ("duration_s", "duration_ms", "duration", "latency_ms", "elapsed_ms", "elapsed")
_SESSIONS: Final = ("session", "session_id", "sessionId", "sid", "conversation_id", "trace_id")
_LANES: Final = ("lane", "agent_id", "agentId")
_STREAM_CHUNK: Final = 1 << 20
# Clients give up after ten minutes, so a request began at most that long before its answer.
_LONGEST: Final = 600.0


class HttpCaptureSource:
    """Reads raw captures."""

    name = "http_capture"
    title = "Raw request and response captures"
    capabilities = Capabilities(
        reads=True,
        writes=True,
        ttl_split=True,
        bodies=True,
        start_times="interval",
        provider_reasons=True,
    )

    def detect(self, head: Head) -> int:
        """Say how sure we are that the file is a capture."""
        if is_event_stream(head.data):
            return 60 if _has_model_events(head.data) else 0
        records = list(head.lines[:5])
        document = head.document
        if isinstance(document, dict) and isinstance(document.get("records"), list):
            document = document["records"]
        if isinstance(document, list):
            records += [item for item in document[:5] if isinstance(item, dict)]
        elif isinstance(document, dict):
            records.append(document)
        best = max((_likeness(record) for record in records), default=0)
        if best == 0 and not records and head.data.lstrip()[:1] in (b"{", b"["):
            return _likeness_of_text(head.data)
        return best

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call a captured exchange."""
        exchanges = Exchanges(str(path), path.stem, problems)
        try:
            with path.open("rb") as stream:
                streamed = is_event_stream(as_utf8(stream.read(4096)))
        except OSError as error:
            count_unreadable(path, error, problems)
            return
        source = _from_stream(path, problems) if streamed else _from_records(path, problems)
        for exchange in source:
            call = exchanges.call(exchange)
            if call is not None:
                yield call

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield nothing: captures lie where their owner put them."""
        del environment, home
        yield from ()


def _likeness(record: Mapping[str, Any]) -> int:
    """Say how much one record looks like a captured exchange."""
    if str(record.get("schema", "")).startswith("cacheaudit."):
        return 0
    request = _inner(_pick(record, _REQUEST))
    response = _inner(_pick(record, _RESPONSE))
    if isinstance(request, Mapping) and _is_request(request):
        return 70
    if isinstance(response, Mapping) and raw_usage(response) is not None:
        return 65
    if _is_request(record):
        return 40
    is_response = "id" in record and ("model" in record or "modelVersion" in record)
    has_content = {"content", "choices", "output", "candidates"} & record.keys()
    return 40 if is_response and has_content and raw_usage(record) is not None else 0


def _likeness_of_text(data: bytes) -> int:
    """Judge a document that is too large to decode by the names in its beginning."""
    wrapped = any(b'"' + name.encode() + b'"' in data for name in ("body", "request", "records"))
    prompt = b'"messages"' in data or b'"contents"' in data
    return 35 if prompt and b'"model"' in data and wrapped else 0


def _has_model_events(data: bytes) -> bool:
    return any(
        sign in data
        for sign in (
            b"message_start", b'"choices"', b"response.created", b'"candidates"', b"usageMetadata",
            b"response.completed",
        )
    )  # fmt: skip


def _is_request(body: Mapping[str, Any]) -> bool:
    if isinstance(body.get("messages"), list) or isinstance(body.get("contents"), list):
        return "usage" not in body and "choices" not in body
    return "model" in body and "input" in body and "output" not in body and "usage" not in body


def _pick(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            value = mapping(value) or sequence(value) or value
        if not is_absent(value):
            return value
    return None


def _inner(part: Any) -> Any:
    """Return the body of a part that may be wrapped with method, address, status and headers."""
    if not isinstance(part, Mapping) or not _ENVELOPE & part.keys():
        return part
    if _is_request(part) or raw_usage(part) is not None:
        return part
    return _pick(part, _BODY)


def _from_records(path: Path, problems: ProblemSink) -> Iterator[Exchange]:
    for number, record in json_records(path, problems, "records"):
        where = f"{path}:{number}"
        exchange = _exchange(Record(record, where, problems), number)
        if exchange is not None:
            yield exchange
        elif not _is_note(record):
            problems("no_exchange", where, "neither a request nor a response in this record")


def _is_note(record: Mapping[str, Any]) -> bool:
    """Whether a record is one that recorders write about themselves."""
    return isinstance(record.get("type"), str) and not {"body", "request", "response"} & set(record)


def _exchange(record: Record, number: int) -> Exchange | None:
    fields = record.fields
    request_part, response_part = _pick(fields, _REQUEST), _pick(fields, _RESPONSE)
    request = _request_of(request_part, record)
    response = _response_of(response_part, record)
    if request is None and _is_request(fields):
        request = dict(fields)
    if response is None and request is None and raw_usage(fields) is not None:
        response = dict(fields)
    elif response is None and isinstance(fields.get("usage"), Mapping) and request is not fields:
        response = {"usage": fields["usage"]}
    if request is None and response is None:
        return None
    outer_request, outer_response = mapping(request_part), mapping(response_part)
    started, span, ended = _times(record, has_response=response is not None)
    return Exchange(
        request=request,
        response=response,
        url=_url(fields, outer_request),
        request_headers=outer_request.get("headers")
        or fields.get("request_headers")
        or fields.get("headers"),
        response_headers=outer_response.get("headers") or fields.get("response_headers"),
        status=_status(fields, outer_response),
        session=record.text(*_SESSIONS),
        lane=record.text(*_LANES),
        started_at=started,
        start_span=span,
        first_token_at=record.time("first_token_at", "first_token_time"),
        ended_at=ended,
        error=text(fields.get("error")),
        number=number,
    )


def _request_of(part: Any, record: Record) -> dict[str, Any] | None:
    body = _inner(part)
    encoding = header(mapping(part).get("headers"), "content-encoding")
    if isinstance(body, str):
        data = _unpacked(body, encoding, record)
        body = json_object(data) if data is not None else None
        if body is None:
            record.problem("invalid_json", "request body")
    return dict(body) if isinstance(body, Mapping) and body else None


def _response_of(part: Any, record: Record) -> object:
    body = _inner(part)
    if isinstance(body, str):
        return _unpacked(body, header(mapping(part).get("headers"), "content-encoding"), record)
    if isinstance(body, list) and body and all(isinstance(item, str) for item in body):
        return "".join(body)
    return body


def _unpacked(body: str, encoding: str | None, record: Record) -> bytes | None:
    data = body.encode(errors="replace")
    if looks_like_text(data) or is_event_stream(data):
        return data
    try:
        return decompress(unbase64(data), encoding)
    except UnpackError as error:
        record.problem("unreadable_body", str(error))
        return None


def _url(fields: Mapping[str, Any], request: Mapping[str, Any]) -> str | None:
    for part in (request, fields):
        for name in ("url", "uri", "endpoint"):
            if found := text(part.get(name)):
                return found
    host = text(request.get("host")) or text(fields.get("host")) or text(fields.get("base_url"))
    path = text(request.get("path")) or text(fields.get("path")) or ""
    return f"{host.rstrip('/')}{path}" if host else (path or None)


def _status(fields: Mapping[str, Any], response: Mapping[str, Any]) -> int | None:
    for part in (response, fields):
        for name in ("status_code", "status", "statusCode"):
            value = part.get(name)
            if type(value) is int and 100 <= value < 600:
                return value
    return None


def _times(record: Record, *, has_response: bool) -> tuple[float | None, Span | None, float | None]:
    """Return start, interval of the start, and end.

    A bare time stamp of a request that was logged alone is its start. Beside a response it may be
    either end of the call, so that it only bounds the start, unless a duration is known.
    """
    started, ended = record.time(*_STARTS), record.time(*_ENDS)
    duration = record.seconds(*_DURATIONS)
    stamp = record.time(*_STAMPS)
    if started is None and stamp is not None and not has_response:
        started = stamp
    if started is None and ended is not None and duration is not None:
        started = ended - duration
    if ended is None and started is not None and duration is not None:
        ended = started + duration
    if started is not None or stamp is None:
        return started, None, ended
    return None, Span(stamp - (duration or _LONGEST), stamp), ended


def _from_stream(path: Path, problems: ProblemSink) -> Iterator[Exchange]:
    """Cut a file of server-sent events into responses and yield each."""
    events: list[SseEvent] = []
    number = 0
    decoder = SseDecoder()
    with _opened(path, problems) as stream:
        for event in decode_sse(iter(lambda: stream.read(_STREAM_CHUNK), b""), decoder):
            if events and _begins(event):
                number += 1
                yield _streamed(events, number)
                events = []
            events.append(event)
    if events:
        yield _streamed(events, number + 1)
    if decoder.dropped:
        problems("too_long_line", str(path), f"{decoder.dropped} events over {LONGEST >> 20} MiB")


def _opened(path: Path, problems: ProblemSink) -> BinaryIO:
    """Open a file; one that is marked as UTF-16 is read at once."""
    stream = path.open("rb")
    mark = stream.read(2)
    stream.seek(0)
    if mark not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return stream
    stream.close()
    return io.BytesIO(read_whole(path, problems))


def _begins(event: SseEvent) -> bool:
    """Whether an event is the first of a response."""
    return '"message_start"' in event.data[:200] or '"response.created"' in event.data[:200]


def _streamed(events: list[SseEvent], number: int) -> Exchange:
    decoded: list[dict[str, Any]] = []
    for event in events:
        found = event.json()
        if found is not None:
            named = "type" in found or event.event is None
            decoded.append(found if named else {"type": event.event, **found})
    return Exchange(response=decoded, number=number)


SOURCE = HttpCaptureSource()
