"""Spans and metrics by the names of the GenAI conventions; nothing of it unless asked for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cacheaudit import CacheAudit
from cacheaudit.agent.telemetry import Telemetry
from cacheaudit.model.clock import FixedClock
from tests.unit.agent.servers import MODEL, Reply, Script, client, events

SECRET = "the secret of the prompt"
ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 10,
    "system": [
        {"type": "text", "text": "rules", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ],
    "messages": [{"role": "user", "content": SECRET}],
}


class Seen:
    """What OpenTelemetry was told."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.spans = TracerProvider()
        self.spans.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.telemetry = Telemetry(self.spans, self.meters)

    def finished(self) -> list[Any]:
        return [s for s in self.exporter.get_finished_spans() if s.name.startswith("chat")]

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_a_span_says_what_the_call_said(make: Callable[..., CacheAudit], seen: Seen) -> None:
    clock = FixedClock(1_795_996_800.25)
    audit = make(telemetry=seen.telemetry, clock=clock)
    with audit.session("issue-1", task="t"):
        audit.wrap(client(Script())).messages.create(**ASK)
    assert audit.flush()
    (span,) = seen.finished()
    assert span.name == f"chat {MODEL}"
    assert span.kind is trace.SpanKind.CLIENT
    assert span.start_time == 1_795_996_800_250_000_000
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": MODEL,
        "gen_ai.conversation.id": "issue-1",
        "gen_ai.response.id": "msg_0001",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 2_340,
        "gen_ai.usage.output_tokens": 12,
        "gen_ai.usage.cache_read.input_tokens": 2_000,
        "gen_ai.usage.cache_creation.input_tokens": 300,
        "cacheaudit.lane": "main",
        "cacheaudit.purpose": "main",
        "cacheaudit.task": "t",
        "cacheaudit.cache.write_5m": 300,
        "cacheaudit.cache.write_1h": 0,
        "cacheaudit.breakpoints": ("system[0]",),
        "cacheaudit.ttl": ("1h",),
    }
    assert SECRET not in span.to_json()


def test_it_hangs_below_the_span_that_was_open(make: Callable[..., CacheAudit], seen: Seen) -> None:
    audit = make(telemetry=seen.telemetry)
    wrapped = audit.wrap(client(Script()))
    tracer = seen.spans.get_tracer("mine")
    with tracer.start_as_current_span("agent") as outer:
        wrapped.messages.create(**ASK)
    assert audit.flush()
    (span,) = seen.finished()
    assert span.parent is not None
    assert span.parent.span_id == outer.get_span_context().span_id


def test_streams_are_told_once_and_when_they_end(
    make: Callable[..., CacheAudit], seen: Seen
) -> None:
    audit = make(telemetry=seen.telemetry)
    stream = audit.wrap(client(Script(Reply(frames=events(1))))).messages.create(**ASK, stream=True)
    next(iter(stream))
    assert audit.flush()
    assert seen.finished() == []
    list(stream)
    assert audit.flush()
    assert len(seen.finished()) == 1


def test_failures_are_failures(make: Callable[..., CacheAudit], seen: Seen) -> None:
    audit = make(telemetry=seen.telemetry)
    error = Reply({"type": "error", "error": {"type": "overloaded_error", "message": SECRET}}, 529)
    with pytest.raises(Exception, match="529"):
        audit.wrap(client(Script(error), max_retries=0)).messages.create(**ASK)
    assert audit.flush()
    (span,) = seen.finished()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.attributes["error.type"] == "overloaded_error"
    assert SECRET not in span.to_json()


def test_metrics(make: Callable[..., CacheAudit], seen: Seen) -> None:
    audit = make(telemetry=seen.telemetry)
    wrapped = audit.wrap(client(Script()))
    wrapped.messages.create(**ASK)
    wrapped.messages.create(**ASK)
    assert audit.flush()
    sums = {
        p.attributes["gen_ai.token.type"]: p.sum for p in seen.points("gen_ai.client.token.usage")
    }
    assert sums == {"input": 4_680, "output": 24}
    uses = {
        p.attributes["cacheaudit.cache.use"]: p.value
        for p in seen.points("cacheaudit.cache.tokens")
    }
    assert uses == {"read": 4_000, "uncached": 80, "write_5m": 600}
    (duration,) = seen.points("gen_ai.client.operation.duration")
    assert duration.count == 2
    assert duration.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": MODEL,
    }


def test_an_exporter_that_fails_is_no_trouble(make: Callable[..., CacheAudit]) -> None:
    class Broken:
        def sent(self, attempt: Any) -> None:
            raise ValueError

        def learn(self, call: Any) -> None:
            raise ValueError

    audit = make(telemetry=Broken())
    audit.wrap(client(Script())).messages.create(**ASK)
    assert len([c for s in audit.sessions() for c in s.calls]) == 1
    assert audit.state.faults == {"request:ValueError": 1, "learn:ValueError": 1}


def test_off_unless_asked_for() -> None:
    code = (
        "import sys; from cacheaudit import CacheAudit; CacheAudit('/dev/null/x');"
        "assert 'cacheaudit.agent.telemetry' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
