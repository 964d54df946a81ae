"""Observations exported from Langfuse."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from cacheaudit.ingest.detect import head_of
from cacheaudit.ingest.sources.langfuse import SOURCE
from tests.unit.ingest.wire_samples import WIRE, lines, parts, read


def row(**more: Any) -> dict[str, Any]:
    return {
        "id": "o1",
        "traceId": "t1",
        "type": "GENERATION",
        "startTime": "2026-09-01T10:00:00Z",
        "endTime": "2026-09-01T10:00:02Z",
        "model": "claude-opus-5",
        "usageDetails": {"input": 5, "input_cache_read": 60, "output": 7, "total": 72},
        **more,
    }


def test_the_blob_export() -> None:
    calls, problems = read(SOURCE, WIRE / "langfuse.jsonl")
    assert [c.id for c in calls] == ["o2", "o3", "o4"]
    assert parts(calls[0]) == (5, 128955, 1253, None, None, 80)
    assert [c.usage.total_input for c in calls if c.usage] == [130213, 130213]
    # Counted twice by Langfuse: the span's own attributes say what was sent.
    assert parts(calls[1]) == (5, 128955, None, None, 1253, 10)
    assert calls[2].usage is None
    assert calls[2].error is not None
    assert calls[2].error.message == "overloaded"
    assert {c.session for c in calls} == {"lf-1"}
    assert calls[0].reported_cost == Decimal("0.0446")
    first = calls[0]
    assert (first.started_at, first.first_token_at, first.ended_at) == (
        1_788_256_800.5,
        1_788_256_801.5,
        1_788_256_804.0,
    )
    assert problems == {"write_ttl_assumed": 1}


def test_a_single_trace_gives_its_session_to_its_observations() -> None:
    calls, problems = read(SOURCE, WIRE / "langfuse-trace.json")
    (call,) = calls
    assert call.session == "lf-9"
    assert parts(call) == (149, 6016, None, None, None, 5)
    assert call.prompt is not None
    assert call.prompt.tokens == 6165
    assert call.first_token_at == 1_788_260_400.5
    assert problems == {}


def test_a_doubled_record_is_recognised_by_its_sums(tmp_path: Path) -> None:
    details = {
        "input": 130213,
        "input_cache_read": 128955,
        "input_cache_creation": 1253,
        "output": 10,
        "total": 260431,
    }
    calls, problems = read(SOURCE, lines(tmp_path / "l.jsonl", [row(usageDetails=details)]))
    assert calls[0].usage is not None
    assert calls[0].usage.total_input == 130213
    assert problems["fields_disagree"] == 1


def test_table_export(tmp_path: Path) -> None:
    details = json.dumps({"input": 5, "input_cache_read": 60, "output": 7, "total": 72})
    quoted = '"' + details.replace('"', '""') + '"'
    path = tmp_path / "t.csv"
    path.write_text(
        "id,traceId,type,startTime,endTime,model,usageDetails,totalCost\n"
        f"o1,t1,GENERATION,2026-09-01T10:00:00Z,2026-09-01T10:00:02Z,claude-opus-5,{quoted},0.01\n"
        f"o2,t1,SPAN,2026-09-01T10:00:00Z,2026-09-01T10:00:02Z,,{{}},\n"
    )
    assert SOURCE.detect(head_of(path)) == 95
    calls, problems = read(SOURCE, path)
    assert [(c.id, c.session, parts(c)) for c in calls] == [
        ("o1", "t1", (5, 60, None, None, None, 7))
    ]
    assert calls[0].reported_cost == Decimal("0.01")
    assert problems == {}


def test_an_api_page_and_the_older_usage_field(tmp_path: Path) -> None:
    old = row(id="o2", usageDetails=None, usage={"input": 90, "output": 3, "unit": "TOKENS"})
    path = tmp_path / "page.json"
    path.write_text(json.dumps({"data": [row(), old], "meta": {"totalItems": 2}}, indent=1))
    assert SOURCE.detect(head_of(path)) == 95
    calls, problems = read(SOURCE, path)
    assert parts(calls[0]) == (5, 60, None, None, None, 7)
    usage = calls[1].usage
    assert usage is not None
    assert (usage.total_input, usage.cache_read, usage.output) == (90, None, 3)
    assert problems == {"cache_split_unknown": 1}


def test_only_requests_become_prompts(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "One?"}]
    rows = [
        row(id="a", input=turns),
        row(id="b", input=json.dumps({"messages": turns, "system": "S"})),
        row(id="c", input="just text"),
        row(id="d", input={"question": "?"}),
    ]
    calls, problems = read(SOURCE, lines(tmp_path / "l.jsonl", rows))
    assert [c.prompt is not None for c in calls] == [True, True, False, False]
    assert problems == {}


def test_damage_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "l.jsonl",
        [
            row(id="a"),
            '{"id": "b", "traceId"',
            "[3]",
            row(id="c", startTime="noon"),
            row(id="d", usageDetails={"input": -5, "input_cache_read": 60}),
            row(id="e", usageDetails={"input": 5, "input_cache_read": "many"}),
            row(id="f", usageDetails="no object"),
            row(id="g"),
        ],
    )
    calls, problems = read(SOURCE, path)
    assert [c.id for c in calls] == ["a", "c", "d", "e", "f", "g"]
    assert parts(calls[-1]) == (5, 60, None, None, None, 7)
    assert problems.pop("cache_split_unknown", 0) <= 1
    assert problems == {
        "truncated_line": 1,
        "wrong_type": 3,  # the line, the time, the count
        "negative_part": 1,
        "missing_usage": 1,
    }
