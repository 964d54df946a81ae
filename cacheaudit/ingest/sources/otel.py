"""OpenTelemetry spans and events of generative models, in every shape that exporters write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cacheaudit.dialects.anthropic import DIALECT as ADDITIVE
from cacheaudit.dialects.detect import normalise
from cacheaudit.dialects.otel import INPUT, OUTPUT, READ, WRITE, is_count
from cacheaudit.ingest._fields import Record, mapping, sequence, text
from cacheaudit.ingest.answers import short_message
from cacheaudit.ingest.bodies import Bodies, with_sizes
from cacheaudit.ingest.documents import json_records
from cacheaudit.ingest.endpoints import endpoint_of, provider_of_model
from cacheaudit.ingest.gen_ai import (
    MODEL,
    SESSION,
    first_text,
    model_of,
    provider_of,
    request_of,
)
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.rows import as_counts
from cacheaudit.ingest.spans import SpanRecord, spans_of
from cacheaudit.model.call import Call, CallError, Origin, Span
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import FLAG_CACHE_OVER_INPUT, Usage

_CALLS: Final = frozenset(
    {"chat", "text_completion", "completion", "generate_content", "message", "messages",
     "responses", "inference"}
)  # fmt: skip
_SUMS: Final = frozenset({"invoke_agent", "create_agent", "invoke_workflow", "agent", "workflow"})
_SIGNS: Final = (b"gen_ai.", b"llm.token_count", b"llm.model_name", b"ai.usage.", b"claude_code.")
_SHAPES: Final = (
    b"resourceSpans", b"resource_spans", b"resourceLogs", b"resource_logs", b"traceId",
    b"trace_id", b"TraceID", b'"attributes', b"span_id",
)  # fmt: skip
# Names of other families, by the convention's name for the same count.
_ALIASES: Final = {
    "ai.usage.inputTokens": "gen_ai.usage.input_tokens",
    "ai.usage.promptTokens": "gen_ai.usage.prompt_tokens",
    "ai.usage.outputTokens": "gen_ai.usage.output_tokens",
    "ai.usage.completionTokens": "gen_ai.usage.completion_tokens",
    "ai.usage.cachedInputTokens": "gen_ai.usage.cache_read.input_tokens",
    "ai.usage.inputTokenDetails.cacheReadTokens": "gen_ai.usage.cache_read.input_tokens",
    "ai.usage.inputTokenDetails.cacheWriteTokens": "gen_ai.usage.cache_write.input_tokens",
    "ai.usage.reasoningTokens": "gen_ai.usage.reasoning_tokens",
}
_CLIENT_NAMES: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_creation_tokens": "cache_creation_input_tokens",
}
_CLIENT: Final = "claude_code."
_CLIENT_CALLS: Final = frozenset({"api_request", "api_error", "llm_request"})
_COSTS: Final = ("cost_usd", "gen_ai.usage.cost", "operation.cost", "llm.cost.total")
_FIRST_S: Final = (
    "gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token",
    "gen_ai.response.time_to_first_token",
)  # fmt: skip
_FIRST_MS: Final = ("ai.response.msToFirstChunk", "ttft_ms")
_HELD: Final = 20_000
_SEEN: Final = 200_000
_SESSIONS: Final = 64
# A log record is written when the answer is there; clients give up after ten minutes.
_LONGEST: Final = 600.0


class OtelSource:
    """Reads spans; sums over several calls are used only where the calls are missing."""

    name = "otel"
    title = "OpenTelemetry spans (GenAI)"
    capabilities = Capabilities(
        reads=True, writes=True, ttl_split=True, bodies=True, start_times="exact"
    )

    def detect(self, head: Head) -> int:
        """Say how sure we are that the file holds spans of model calls."""
        if head.data.lstrip()[:1] not in (b"{", b"[", b"\xef"):
            return 0
        if not any(sign in head.data for sign in _SIGNS):
            return 0
        document = head.document
        if isinstance(document, list):
            document = document[0] if document else None
        records = [*head.lines[:20], *([document] if isinstance(document, dict) else [])]
        for record in records:
            if any(_is_ours(span) for span in spans_of(record)):
                return 85
        return 80 if not records and any(shape in head.data for shape in _SHAPES) else 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call a span, each once."""
        reader = _Reader(path, problems)
        # A whole document has no "spans" at its top; the key finds them where it is broken.
        for number, value in json_records(path, problems, "spans"):
            for span in spans_of(value):
                yield from reader.take(span, number)
        yield from reader.rest()

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield nothing: exporters write where they are told to."""
        del environment, home
        yield from ()


def _is_ours(span: SpanRecord) -> bool:
    return _usage_attributes(span) != {} or _kind(span) == "call"


def _usage_attributes(span: SpanRecord) -> dict[str, Any]:
    """Return the token counts of a span under the names of the convention."""
    found: dict[str, Any] = {}
    for source in (span.attributes, *(inner for _, inner in span.events)):
        for name, value in source.items():
            known = _ALIASES.get(name, name)
            if is_count(known):
                found.setdefault(known, value)
    return found


def _kind(span: SpanRecord) -> str:
    """Return ``call``, ``sum`` (over several calls) or ``""``."""
    if _is_client(span):
        return "call" if _client_event(span) in _CLIENT_CALLS else ""
    operation = text(span.attributes.get("gen_ai.operation.name"))
    if operation is not None:
        if operation in _CALLS:
            return "call"
        return "sum" if operation in _SUMS else ""
    inner = text(span.attributes.get("ai.operationId")) or ""
    if inner:
        return "call" if inner.endswith((".doGenerate", ".doStream")) else "sum"
    kind = text(span.attributes.get("openinference.span.kind"))
    if kind is not None:
        return {"LLM": "call", "EMBEDDING": "", "TOOL": ""}.get(kind.upper(), "sum")
    return "call" if first_text(span.attributes, MODEL) else "sum"


def _is_client(span: SpanRecord) -> bool:
    """Whether a record is one of Claude Code's own, whose input count leaves the cache out."""
    return span.name.startswith(_CLIENT) or (span.is_log and _client_event(span) in _CLIENT_CALLS)


def _client_event(span: SpanRecord) -> str:
    return (text(span.attributes.get("event.name")) or span.name).removeprefix(_CLIENT)


class _Reader:
    """One pass over one file: what was seen, and what waits for a better record."""

    def __init__(self, path: Path, problems: ProblemSink) -> None:
        self._path = path
        self._problems = problems
        self._bodies = Bodies(problems)
        self._seen: dict[str, None] = {}
        self._traces: dict[str, None] = {}
        self._logs: dict[str, Call] = {}
        self._sums: list[tuple[str | None, Call]] = []
        self._exclusive: set[str] = set()
        self._pending: dict[str, Mapping[str, Any]] = {}

    def take(self, span: SpanRecord, number: int) -> Iterator[Call]:
        """Take one record; yield the calls that it completes."""
        where = f"{self._path}:{number}"
        if self._is_body(span):
            return
        usage = self._usage(span, where)
        kind = _kind(span) if usage is not None or not span.is_log or _failed(span) else ""
        if not kind or (usage is None and kind == "sum"):
            return
        key = _key(span)
        if key is not None and key in self._seen:
            return
        call = self._call(span, number, usage, key, with_body=kind == "call")
        if kind == "sum":
            if len(self._sums) < _HELD:
                self._sums.append((span.trace, call))
            return
        if span.trace is not None:
            _keep(self._traces, span.trace)
        if span.is_log and key is not None:
            self._logs[key] = call
            if len(self._logs) > _HELD:
                yield self._flagged(self._logs.pop(next(iter(self._logs))))
            return
        if key is not None:
            _keep(self._seen, key)
            call = _with_body_of(call, self._logs.pop(key, None))
        if usage is None and call.error is None:
            self._problems("missing_usage", where, "span of a model call without token counts")
        yield self._flagged(call)

    def rest(self) -> Iterator[Call]:
        """Yield the log records that no span repeats, and sums whose calls were not recorded."""
        for call in self._logs.values():
            yield self._flagged(call)
        for trace, call in self._sums:
            if trace is None or trace not in self._traces:
                yield self._flagged(msgspec.structs.replace(call, requests=None))

    def _flagged(self, call: Call) -> Call:
        """Count what is wrong with the usage of a call that is really given out."""
        for flag in call.usage.flags if call.usage is not None else ():
            self._problems(flag, str(call.origin))
        return call

    def _is_body(self, span: SpanRecord) -> bool:
        """Keep a request body that is logged apart, for the call that follows it."""
        if _client_event(span) != "api_request_body":
            return False
        body = mapping(span.attributes.get("body"))
        session = self._session(span)
        if body:
            self._pending[session] = body
            if len(self._pending) > _SESSIONS:
                del self._pending[next(iter(self._pending))]
        elif span.attributes.get("body"):
            self._problems("truncated_body", str(self._path), "logged request body is cut off")
        return True

    def _usage(self, span: SpanRecord, where: str) -> Usage | None:
        if _is_client(span):
            own = {n: span.attributes.get(a) for a, n in _CLIENT_NAMES.items()}
            known = as_counts({n: v for n, v in own.items() if v is not None})
            if known:
                return ADDITIVE.normalise(known)
        counts = as_counts(_usage_attributes(span))
        usage = normalise(counts) if counts else None
        if usage is None:
            return None
        scope = f"{span.scope}/{text(span.attributes.get('gen_ai.system')) or ''}"
        if FLAG_CACHE_OVER_INPUT in usage.flags and scope not in self._exclusive:
            self._exclusive.add(scope)
            what = f"{span.scope or 'its writer'} counts input without the cached tokens"
            self._problems("input_without_cache", where, what)
        return _additive(counts, usage) if scope in self._exclusive else usage

    def _session(self, span: SpanRecord) -> str:
        found = first_text(span.attributes, SESSION) or first_text(span.resource, SESSION)
        return found or span.trace or self._path.stem

    def _call(
        self,
        span: SpanRecord,
        number: int,
        usage: Usage | None,
        key: str | None,
        *,
        with_body: bool,
    ) -> Call:
        where = f"{self._path}:{number}"
        attributes = span.attributes
        record = Record(attributes, where, self._problems)
        model = model_of(attributes)
        provider, surface = self._maker(span, model)
        session = self._session(span)
        request = self._request(span, session, provider) if with_body else None
        agent = text(attributes.get("gen_ai.agent.id"))
        prompt, lane = self._bodies.prompt(
            request,
            session=session,
            where=where,
            provider=provider,
            lane=None if request else agent,
        )
        usage = with_assumed_ttl(usage, prompt, provider, model)
        started, ended, interval = _times(span, record)
        wait = record.seconds(*_FIRST_S)
        if wait is None and (milliseconds := record.seconds(*_FIRST_MS)) is not None:
            wait = milliseconds if "ttft_ms" in attributes else milliseconds / 1000
        return Call(
            id=text(attributes.get("gen_ai.response.id"))
            or span.span
            or f"{self._path.stem}#{number}",
            session=session,
            lane=lane,
            provider=provider,
            surface=surface,
            model=model,
            started_at=started,
            start_span=interval,
            first_token_at=started + wait if started is not None and wait is not None else None,
            ended_at=ended,
            attempt=max(0, (record.count("attempt") or 1) - 1),
            usage=usage,
            prompt=with_sizes(prompt, usage, None, where, self._problems),
            stop_reason=_stop_reason(attributes),
            error=_error(span, record),
            reported_cost=record.money(*_COSTS),
            client=text(span.resource.get("service.name")),
            origin=Origin(str(self._path), number),
            dedupe_key=None if key is None else f"otel:{key}",
        )

    def _request(
        self, span: SpanRecord, session: str, provider: str | None
    ) -> Mapping[str, Any] | None:
        if _is_client(span) and session in self._pending:
            return self._pending.pop(session)
        return request_of(span.attributes, span.events, provider)

    def _maker(self, span: SpanRecord, model: str | None) -> tuple[str | None, str | None]:
        provider, surface = provider_of(span.attributes)
        address = first_text(span.attributes, ("server.address", "url.full", "net.peer.name"))
        endpoint = endpoint_of(address)
        if _is_client(span):
            provider = provider or "anthropic"
        found = provider or endpoint.provider or provider_of_model(model)
        return found, endpoint.surface or surface


def _with_body_of(call: Call, log: Call | None) -> Call:
    """Take over the request that only the call's log record holds."""
    if log is None or log.prompt is None or call.prompt is not None:
        return call
    return msgspec.structs.replace(call, prompt=log.prompt, lane=log.lane)


def _keep(seen: dict[str, None], key: str) -> None:
    seen[key] = None
    if len(seen) > _SEEN:
        del seen[next(iter(seen))]


def _key(span: SpanRecord) -> str | None:
    """Identify the call that a record tells of, in whatever records repeat it."""
    response = first_text(span.attributes, ("gen_ai.response.id", "request_id", "llm.response.id"))
    if response is not None:
        return response
    return f"{span.trace}/{span.span}" if span.span is not None else None


def _additive(counts: Mapping[str, Any], usage: Usage) -> Usage:
    """Read the counts of a writer that leaves the cache out of the input."""
    own: dict[str, Any] = {
        "input_tokens": _first(counts, INPUT),
        "cache_read_input_tokens": _first(counts, READ),
        "cache_creation_input_tokens": _first(counts, WRITE),
        "output_tokens": _first(counts, OUTPUT),
    }
    labelled = {
        "ephemeral_5m_input_tokens": usage.write_5m,
        "ephemeral_1h_input_tokens": usage.write_1h,
    }
    if any(count is not None for count in labelled.values()):
        own["cache_creation"] = labelled
    return ADDITIVE.normalise({name: count for name, count in own.items() if count is not None})


def _first(counts: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((counts[name] for name in names if counts.get(name) is not None), None)


def _failed(span: SpanRecord) -> bool:
    return span.failed or _client_event(span) == "api_error"


def _times(span: SpanRecord, record: Record) -> tuple[float | None, float | None, Span | None]:
    """Return start, end, and the interval that holds the start where it is not known."""
    if span.start is not None:
        return span.start, span.end, None
    duration = record.seconds("duration_ms")
    if span.end is None:
        return None, None, None
    if duration is not None:
        return span.end - duration, span.end, None
    return None, span.end, Span(span.end - _LONGEST, span.end)


def _stop_reason(attributes: Mapping[str, Any]) -> str | None:
    for name in ("gen_ai.response.finish_reasons", "ai.response.finishReason", "llm.finish_reason"):
        value = attributes.get(name)
        items = sequence(value)
        if found := text(items[0] if items else value):
            return found
    return None


def _error(span: SpanRecord, record: Record) -> CallError | None:
    kind = record.text("error.type")
    if not _failed(span) and kind is None:
        return None
    status = record.fields.get("http.response.status_code", record.fields.get("status_code"))
    code = int(status) if str(status).isdigit() and 100 <= int(status) < 600 else None
    message = span.message or text(record.fields.get("error"))
    return CallError(kind, code, short_message(message))


SOURCE = OtelSource()
