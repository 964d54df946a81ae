"""OpenTelemetry spans and events of generative models."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.dialects.otel import READ, WRITE
from cacheaudit.ingest.detect import head_of
from cacheaudit.ingest.sources.otel import SOURCE
from tests.unit.ingest.wire_samples import WIRE, examples, lines, parts, read, request


def span(ident: Any = "b1", scope: Any = "lib", **attributes: Any) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return {
        "traceId": "a1",
        "spanId": ident,
        "name": "chat",
        "scope": {"name": scope},
        "startTimeUnixNano": "1788256800000000000",
        "endTimeUnixNano": "1788256802500000000",
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": "claude-opus-5",
            **named,
        },
    }


def counts(total: int, read_: int, write: int, output: int) -> dict[str, int]:
    return {
        "gen_ai.usage.input_tokens": total,
        "gen_ai.usage.cache_read.input_tokens": read_,
        "gen_ai.usage.cache_creation.input_tokens": write,
        "gen_ai.usage.output_tokens": output,
    }


def test_a_span_its_log_record_and_its_agents_sum_are_one_call() -> None:
    calls, problems = read(SOURCE, WIRE / "otlp.jsonl")
    (call,) = calls
    assert parts(call) == (5, 128955, None, None, 1253, 40)
    assert (call.id, call.session, call.model) == ("msg_otel_1", "otel-1", "claude-opus-4-8")
    assert (call.provider, call.surface) == ("anthropic", "claude_api")
    assert (call.started_at, call.ended_at) == (1_790_848_800.0, 1_790_848_804.0)
    assert call.client == "example"
    assert call.prompt is not None
    assert [b.path for b in call.prompt.blocks] == ["system[0]", "messages[0].content[0]"]
    assert call.prompt.tokens == 130213
    assert problems == {"write_ttl_assumed": 1}


@pytest.mark.parametrize("name", [*READ, *WRITE])
def test_every_alias_reaches_the_usage(tmp_path: Path, name: str) -> None:
    other = WRITE[0] if name in READ else READ[0]
    attributes = {
        "gen_ai.usage.input_tokens": 1103,
        "gen_ai.usage.output_tokens": 20,
        name: 600,
        other: 500,
    }
    calls, _ = read(SOURCE, lines(tmp_path / "s.jsonl", [span(**attributes)]))
    read_, written = (600, 500) if name in READ else (500, 600)
    assert [parts(call) for call in calls] == [(3, read_, None, None, written, 20)]


@pytest.mark.parametrize(
    "name",
    [
        "anthropic.usage.cache_creation.ephemeral_{}_input_tokens",
        "gen_ai.usage.details.ephemeral_{}_input_tokens",
        "gen_ai.usage.cache_creation.ephemeral_{}_input_tokens",
        "gen_ai.usage.input_cache_creation_{}",
        "cacheaudit.usage.cache_write_{}",
    ],
)
def test_writes_by_lifetime_reach_the_usage(tmp_path: Path, name: str) -> None:
    split = {name.format("5m"): 400, name.format("1h"): 600}
    calls, problems = read(
        SOURCE, lines(tmp_path / "s.jsonl", [span(**counts(1103, 100, 1000, 20), **split)])
    )
    assert [parts(call) for call in calls] == [(3, 100, 400, 600, None, 20)]
    assert problems == {}


def test_the_order_of_span_and_log_does_not_matter(tmp_path: Path) -> None:
    text = (WIRE / "otlp.jsonl").read_text().splitlines()
    turned = lines(tmp_path / "t.jsonl", reversed(text))
    assert [parts(c) for c in read(SOURCE, turned)[0]] == [(5, 128955, None, None, 1253, 40)]


def test_a_log_record_alone_is_a_call(tmp_path: Path) -> None:
    only = lines(tmp_path / "l.jsonl", (WIRE / "otlp.jsonl").read_text().splitlines()[1:])
    (call,) = read(SOURCE, only)[0]
    assert parts(call) == (5, 128955, None, None, 1253, 40)
    assert call.started_at is None
    assert call.start_span is not None
    assert call.start_span.high == 1_790_848_804.0


def test_a_sum_counts_where_its_calls_are_missing(tmp_path: Path) -> None:
    record = span(**counts(100, 60, 30, 7))
    record["attributes"]["gen_ai.operation.name"] = "invoke_agent"
    (call,) = read(SOURCE, lines(tmp_path / "s.jsonl", [record]))[0]
    assert parts(call) == (10, 60, None, None, 30, 7)
    assert call.requests is None


def test_console_documents_of_openinference() -> None:
    calls, problems = read(SOURCE, WIRE / "spans-console.json")
    assert [parts(c) for c in calls] == [
        (6165, 0, None, None, None, 5),
        (149, 6016, None, None, None, 5),
    ]
    assert [c.started_at for c in calls] == [1_788_256_800.0, 1_788_256_860.0]
    assert {(c.session, c.provider) for c in calls} == {("oi-1", "openai")}
    assert all(c.prompt is not None for c in calls)
    assert problems == {}


def test_a_clients_own_events_leave_the_cache_out_of_the_input() -> None:
    calls, problems = read(SOURCE, WIRE / "client-events.jsonl")
    assert [parts(c) for c in calls] == [
        (3, 0, None, None, 4000, 120),
        (3, 20000, None, None, 4000, 120),
    ]
    assert [(c.started_at, c.ended_at) for c in calls] == [
        (1_788_256_801.5, 1_788_256_805.0),
        (1_788_256_861.5, 1_788_256_865.0),
    ]
    assert {c.reported_cost for c in calls} == {Decimal("0.0451")}
    assert problems == {"write_ttl_assumed": 2}


def test_a_logged_request_body_belongs_to_the_next_call(tmp_path: Path) -> None:
    attributes: dict[str, Any] = {"session.id": "s", "model": "claude-opus-5"}
    body = {**attributes, "event.name": "api_request_body", "body": json.dumps(request("One?"))}
    done = {
        **attributes,
        "event.name": "api_request",
        "input_tokens": "3",
        "cache_read_tokens": "0",
        "cache_creation_tokens": "90",
        "output_tokens": "4",
        "duration_ms": 100,
        "request_id": "q",
    }
    failed = {
        **attributes,
        "event.name": "api_error",
        "error": "busy",
        "status_code": "529",
        "attempt": 3,
    }
    records = [
        {"body": f"claude_code.{a['event.name']}", "timestamp": 1788256800 + i, "attributes": a}
        for i, a in enumerate((body, done, failed))
    ]
    calls, _ = read(SOURCE, lines(tmp_path / "e.jsonl", records))
    good = next(c for c in calls if c.usage is not None)
    bad = next(c for c in calls if c.usage is None)
    assert good.prompt is not None
    assert good.prompt.tokens == 93
    assert bad.error is not None
    assert (bad.error.status, bad.attempt) == (529, 2)


ALIASES = [
    ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens"),
    ("gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cache_creation_input_tokens"),
    ("gen_ai.usage.cache_read_tokens", "gen_ai.usage.cache_write_tokens"),
    ("gen_ai.usage.details.cache_read_tokens", "gen_ai.usage.details.cache_write_tokens"),
    (
        "gen_ai.usage.details.cache_read_input_tokens",
        "gen_ai.usage.details.cache_creation_input_tokens",
    ),
    ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_write.input_tokens"),
    ("gen_ai.usage.input_tokens.cached", "gen_ai.usage.input_tokens.cache_write"),
    ("llm.token_count.prompt_details.cache_read", "llm.token_count.prompt_details.cache_write"),
]


@pytest.mark.parametrize(("reads", "writes"), ALIASES)
def test_every_alias_family(tmp_path: Path, reads: str, writes: str) -> None:
    family = "llm.token_count.prompt" if reads.startswith("llm.") else "gen_ai.usage.input_tokens"
    record = span(**{family: 100, reads: "60", writes: 30, "gen_ai.usage.output_tokens": 7})
    (call,) = read(SOURCE, lines(tmp_path / "s.jsonl", [record]))[0]
    assert parts(call) == (10, 60, None, None, 30, 7)


def test_names_of_the_vercel_sdk(tmp_path: Path) -> None:
    record = span()
    record["attributes"] = {
        "ai.operationId": "ai.streamText.doStream",
        "ai.model.id": "gpt-5.2",
        "ai.usage.inputTokens": 100,
        "ai.usage.cachedInputTokens": 64,
        "ai.usage.outputTokens": 7,
        "ai.response.msToFirstChunk": 250,
    }
    outer = {
        **record,
        "spanId": "b2",
        "attributes": {**record["attributes"], "ai.operationId": "ai.streamText"},
    }
    (call,) = read(SOURCE, lines(tmp_path / "s.jsonl", [record, outer]))[0]
    assert parts(call) == (36, 64, None, None, None, 7)
    assert call.first_token_at == 1_788_256_800.25


def test_nested_and_listed_attributes(tmp_path: Path) -> None:
    nested = span()
    nested["attributes"] = {
        "llm": {
            "model_name": "gpt-5.2",
            "token_count": {"prompt": 100, "completion": 7, "prompt_details": {"cache_read": 64}},
        }
    }
    go = {
        "Name": "chat",
        "SpanContext": {"TraceID": "c1", "SpanID": "d1"},
        "StartTime": "2026-09-01T10:00:00Z",
        "Attributes": [
            {"Key": "gen_ai.request.model", "Value": {"Type": "STRING", "Value": "gpt-5.2"}},
            {"Key": "gen_ai.usage.input_tokens", "Value": {"Type": "INT64", "Value": 50}},
            {
                "Key": "gen_ai.usage.cache_read.input_tokens",
                "Value": {"Type": "INT64", "Value": 20},
            },
        ],
    }
    row = {
        "attributes.gen_ai.usage.input_tokens": 70,
        "attributes.gen_ai.request.model": "gpt-5.2",
        "context.trace_id": "e",
        "attributes.gen_ai.usage.cache_read.input_tokens": 30,
    }
    calls, _ = read(SOURCE, lines(tmp_path / "s.jsonl", [nested, go, row]))
    assert [parts(c)[:2] for c in calls] == [(36, 64), (30, 20), (40, 30)]


def test_an_exclusive_writer_is_recognised_and_named(tmp_path: Path) -> None:
    records = [
        span("b1", "old.lib", **counts(5, 0, 7351, 4)),
        span("b2", "old.lib", **counts(9000, 7351, 0, 4)),
        span("b3", "new.lib", **counts(9000, 7351, 0, 4)),
    ]
    path = lines(tmp_path / "s.jsonl", records)
    calls, problems = read(SOURCE, path)
    assert [parts(c)[:2] for c in calls] == [(5, 0), (9000, 7351), (1649, 7351)]
    assert [c.usage.total_input for c in calls if c.usage] == [7356, 16351, 9000]
    assert problems["input_without_cache"] == 1
    assert "old.lib" in examples(SOURCE, path, "input_without_cache")[0]


def test_structured_messages_keep_order_tools_and_calls(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "parts": [{"type": "text", "content": " One? "}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "t", "name": "f", "arguments": {"b": 1, "a": 2}}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "t", "response": "42"}]},
    ]
    tools = [
        {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}
    ]
    more = {"gen_ai.input.messages": json.dumps(talk), "gen_ai.tool.definitions": json.dumps(tools)}
    claude = span("b1", **counts(100, 60, 30, 7), **more)
    gpt = span("b2", **counts(100, 60, 30, 7), **more)
    gpt["attributes"] |= {"gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5.2"}
    calls, problems = read(SOURCE, lines(tmp_path / "s.jsonl", [claude, gpt]))
    one, two = calls[0].prompt, calls[1].prompt
    assert one is not None
    assert two is not None
    assert [b.kind for b in one.blocks] == ["tool", "text", "tool_use", "tool_result"]
    assert b'" One? "' in one.blocks[1].canonical
    assert b'"input":{"b":1,"a":2}' in one.blocks[2].canonical
    assert len(two.at_level("tools")) == 1
    assert len(two.at_level("messages")) == 3
    assert problems.get("bad_body", 0) == 0


def test_errors_and_stop_reasons(tmp_path: Path) -> None:
    failed = {**span("b1"), "status": {"code": 2, "message": "Overloaded"}}
    failed["attributes"] = {
        **failed["attributes"],
        "error.type": "overloaded_error",
        "http.response.status_code": 529,
    }
    ended = span(
        "b2", **counts(100, 60, 30, 7), **{"gen_ai.response.finish_reasons": '["tool_use"]'}
    )
    calls, _ = read(SOURCE, lines(tmp_path / "s.jsonl", [failed, ended]))
    assert calls[0].error is not None
    assert (calls[0].error.type, calls[0].error.status) == ("overloaded_error", 529)
    assert calls[1].stop_reason == "tool_use"


def test_damage_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "s.jsonl",
        [
            span("b1", **counts(100, 60, 30, 7)),
            '{"traceId": "a1", "attri',
            "5",
            {"resourceSpans": "none"},
            {"resourceSpans": [4, {"scopeSpans": [5, {"spans": [6, {}]}]}]},
            span("b2", **counts(-1, 60, 30, 7)),
            span(
                "b3",
                **{"gen_ai.usage.input_tokens": "many", "gen_ai.usage.cache_read.input_tokens": 1},
            ),
            {**span("b4", **counts(100, 60, 30, 7)), "attributes": "none"},
            span("b5", **{"gen_ai.request.model": "claude-opus-5"}),
            span("b6", **counts(100, 60, 30, 7)),
        ],
    )
    calls, problems = read(SOURCE, path)
    assert [c.id for c in calls] == ["b1", "b2", "b3", "b5", "b6"]
    assert parts(calls[-1]) == (10, 60, None, None, 30, 7)
    assert problems["truncated_line"] == 1
    assert problems["negative_part"] == 1
    assert problems["wrong_type"] == 2
    assert problems["missing_usage"] == 1


def test_whole_spans_of_a_truncated_export_are_read(tmp_path: Path) -> None:
    groups = [
        {"scopeSpans": [{"spans": [span(f"b{g}{i}", **counts(100, 60, 30, 7)) for i in range(2)]}]}
        for g in range(2)
    ]
    text = json.dumps({"resourceSpans": groups}, indent=1)
    path = tmp_path / "cut.json"
    path.write_text(text[: text.rindex("gen_ai.usage")])
    calls, problems = read(SOURCE, path)
    assert [c.id for c in calls] == ["b00", "b01", "b10"]
    assert problems["truncated_document"] == 1


def test_spans_of_other_things_are_not_claimed(tmp_path: Path) -> None:
    record = {**span(), "attributes": {"http.method": "GET"}}
    assert SOURCE.detect(head_of(lines(tmp_path / "s.jsonl", [record]))) == 0


COUNT = st.integers(min_value=0, max_value=10**9)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(COUNT, COUNT, COUNT, COUNT), min_size=1, max_size=8))
def test_otlp_and_flat_attributes_agree(
    tmp_path: Path, rows: list[tuple[int, int, int, int]]
) -> None:
    flat = [
        span(f"b{i}", **counts(fresh + read_ + write, read_, write, output))
        for i, (fresh, read_, write, output) in enumerate(rows, 1)
    ]
    otlp = [
        {
            **record,
            "attributes": [
                {
                    "key": k,
                    "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v},
                }
                for k, v in record["attributes"].items()
            ],
        }
        for record in flat
    ]
    document = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "lib"}, "spans": otlp}]}]}
    expected = [(fresh, read_, write, output) for fresh, read_, write, output in rows]
    for path in (lines(tmp_path / "f.jsonl", flat), lines(tmp_path / "o.json", [document])):
        calls, _ = read(SOURCE, path)
        assert [(p[0], p[1], p[4], p[5]) for p in map(parts, calls)] == expected
