"""Spans and metrics of recorded calls for OpenTelemetry, by the GenAI names.

Names of the GenAI conventions as of 2026-08 (all of them still *development*); what those do not
name stands under ``cacheaudit.*``. Content is never sent.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cacheaudit._lazy import need
from cacheaudit._version import __version__
from cacheaudit.agent.attempt import Attempt
from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.names import table_name

_SCOPE: Final = "cacheaudit"
_KEPT: Final = 4_096
_PROVIDERS: Final[Mapping[str, str]] = {
    "anthropic": "anthropic",
    "openai": "openai",
    "deepseek": "deepseek",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
_WRITES: Final = ("write_5m", "write_1h", "write_30m", "write_12h", "write_other")


class Telemetry:
    """Tells OpenTelemetry of every call, in the writer's thread.

    Args:
        spans: Makes spans; ``None``: the global provider's.
        meters: Makes instruments; ``None``: the global provider's.

    Raises:
        MissingExtraError: OpenTelemetry's API is not installed.
    """

    def __init__(self, spans: Any = None, meters: Any = None) -> None:
        trace, metrics = need("opentelemetry.trace", "otel"), need("opentelemetry.metrics", "otel")
        self._context = need("opentelemetry.context", "otel")
        self._kind = trace.SpanKind.CLIENT
        self._status = trace.Status(trace.StatusCode.ERROR)
        self._tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider=spans)
        meter = metrics.get_meter(_SCOPE, __version__, meter_provider=meters)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", unit="{token}", description="Tokens of a call"
        )
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration", unit="s", description="Duration of a call"
        )
        self._first = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            unit="s",
            description="Time to the first token",
        )
        self._cache = meter.create_counter(
            "cacheaudit.cache.tokens", unit="{token}", description="Input tokens by cache use"
        )
        self._lock = threading.Lock()
        self._parents: OrderedDict[str, Any] = OrderedDict()

    def sent(self, attempt: Attempt) -> None:
        """Keep what span is open where a request is sent; called in that thread."""
        with self._lock:
            self._parents[attempt.key] = self._context.get_current()
            if len(self._parents) > _KEPT:
                self._parents.popitem(last=False)

    def learn(self, call: Call) -> None:
        """Tell of a call that has ended."""
        if call.extra.get("unfinished") or call.started_at is None:
            return
        key = (call.dedupe_key or "").removeprefix("recorder:")
        with self._lock:
            parent = self._parents.pop(key, None)
        name = "chat" if call.model is None else f"chat {call.model}"
        span = self._tracer.start_span(
            name,
            context=parent,
            kind=self._kind,
            attributes=dict(attributes(call)),
            start_time=_nanoseconds(call.started_at),
        )
        if call.error is not None:
            span.set_status(self._status)
        ended = call.started_at if call.ended_at is None else call.ended_at
        span.end(end_time=_nanoseconds(max(ended, call.started_at)))
        self._measure(call)

    def _measure(self, call: Call) -> None:
        about = dict(_about(call))
        usage = call.usage
        if usage is not None:
            for kind, count in (("input", usage.total_input), ("output", usage.output)):
                if count is not None:
                    self._tokens.record(count, {**about, "gen_ai.token.type": kind})
            for use, count in _uses(usage):
                self._cache.add(count, {**about, "cacheaudit.cache.use": use})
        start = call.started_at
        if start is not None and call.ended_at is not None:
            failed = {} if call.error is None else {"error.type": _error(call)}
            self._seconds.record(max(0.0, call.ended_at - start), {**about, **failed})
        if start is not None and call.first_token_at is not None:
            self._first.record(max(0.0, call.first_token_at - start), about)


def attributes(call: Call) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a call's span; what is not known is left out."""
    yield from _about(call)
    usage = call.usage
    known: list[tuple[str, Any]] = [
        ("gen_ai.conversation.id", call.session or None),
        ("gen_ai.response.id", call.id),
        ("gen_ai.response.finish_reasons", [call.stop_reason] if call.stop_reason else None),
        ("error.type", None if call.error is None else _error(call)),
        ("cacheaudit.lane", call.lane),
        ("cacheaudit.purpose", call.purpose),
        ("cacheaudit.task", call.task),
        ("cacheaudit.attempt", call.attempt or None),
    ]
    if usage is not None:
        known += [
            ("gen_ai.usage.input_tokens", usage.total_input),
            ("gen_ai.usage.output_tokens", usage.output),
            ("gen_ai.usage.cache_read.input_tokens", usage.cache_read),
            ("gen_ai.usage.cache_creation.input_tokens", usage.cache_write),
            ("gen_ai.usage.reasoning.output_tokens", usage.reasoning),
            *((f"cacheaudit.cache.{name}", getattr(usage, name)) for name in _WRITES),
        ]
    if call.diagnostics is not None:
        known.append(("cacheaudit.miss.reason", call.diagnostics.type))
    if call.prompt is not None:
        marks = [call.prompt.blocks[index] for index in call.prompt.marked]
        ttls = sorted({mark.marker.ttl or "default" for mark in marks if mark.marker is not None})
        known.append(("cacheaudit.breakpoints", [mark.path for mark in marks]))
        known.append(("cacheaudit.ttl", ttls or None))
    for name, value in known:
        if value is not None:
            yield name, value


def _about(call: Call) -> Iterator[tuple[str, str]]:
    yield "gen_ai.operation.name", "chat"
    if call.provider is not None:
        name = table_name(call.surface) if call.surface in ("bedrock", "azure") else call.provider
        yield "gen_ai.provider.name", _PROVIDERS.get(name, name)
    if call.model is not None:
        yield "gen_ai.request.model", call.model


def _uses(usage: Usage) -> Iterator[tuple[str, int]]:
    for use, count in (
        ("read", usage.cache_read),
        ("uncached", usage.uncached_input),
        *((name, getattr(usage, name)) for name in _WRITES),
    ):
        if count:
            yield use, count


def _error(call: Call) -> str:
    error = call.error
    if error is None:
        return "_OTHER"
    return error.type or (str(error.status) if error.status is not None else "_OTHER")


def _nanoseconds(at: float) -> int:
    return round(at * 1_000_000) * 1_000
