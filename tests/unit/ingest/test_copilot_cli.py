"""Copilot CLI: running totals by model, answers that no shutdown followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.detect import recognise
from cacheaudit.ingest.sources.copilot_cli import SOURCE
from cacheaudit.model.call import Span
from tests.unit.ingest.agent_samples import (
    SAMPLES,
    assert_claims,
    assert_sound,
    damaged,
    kinds,
    lines_of,
    parts,
    read,
    write_lines,
)

RESUMED = SAMPLES / "copilot_cli" / "resumed" / "events.jsonl"
MAY_1 = 1777629600.0  # 2026-05-01T10:00:00Z


@pytest.mark.shared
def test_real_session_totals_as_expected(shared: Path) -> None:
    key = "sessions/copilot_cli/a.jsonl"
    expected = json.loads((shared / "data" / "expected.json").read_text())["files"][key]
    calls, problems = read(SOURCE, shared / "data" / key)
    assert not problems
    assert len(calls) == expected["requests"] == 1
    assert parts(calls[0]) == (
        expected["uncached_input"],
        expected["cache_read"],
        0,
        expected["output"],
    )
    assert calls[0].usage is not None
    assert calls[0].usage.reasoning == expected["reasoning_inside_output"]
    assert calls[0].model == "gpt-5.3-codex-spark"
    # Turn started at 08:36:32.333, answer at 08:36:34.839.
    assert calls[0].start_span == Span(1783067792.333, 1783067794.839)
    assert_claims(SOURCE, shared / "data" / key)


def test_an_extract_that_holds_little_more_than_the_totals_is_recognised(tmp_path: Path) -> None:
    usage = {"inputTokens": 1000, "cacheReadTokens": 600, "outputTokens": 20}
    metrics = {"gpt-5.2": {"requests": {"count": 1}, "usage": usage}}
    shutdown = {"type": "session.shutdown", "data": {"modelMetrics": metrics}}
    file = write_lines(tmp_path / "events.jsonl", [shutdown])
    assert recognise(file) is SOURCE
    (call,) = read(SOURCE, file)[0]
    assert parts(call) == (400, 600, None, 20)


def test_totals_run_on_over_a_resumed_session() -> None:
    calls, problems = read(SOURCE, RESUMED)
    assert not problems
    summed = [call for call in calls if call.model == "claude-sonnet-4-5"]
    # The input holds reads and writes: 74,463 = 6 + 49,489 + 24,968 at the second shutdown.
    assert [sum(parts(call)[n] or 0 for call in summed) for n in range(4)] == [6, 49489, 24968, 149]
    assert [call.requests for call in summed] == [1, 2]


def test_one_request_is_that_request_and_several_are_a_sum() -> None:
    one, several, other, open_end = read(SOURCE, RESUMED)[0]
    assert (one.id, one.lane, one.purpose) == ("m1", "main", "main")
    assert one.start_span == Span(MAY_1 + 1.2, MAY_1 + 6)
    assert (several.lane, several.purpose, several.requests) == ("totals", "other", 2)
    assert several.ended_at == MAY_1 + 1209
    assert [(m.kind, m.tokens_before) for m in several.boundaries] == [
        ("resume", None),
        ("compaction", 24_900),
    ]
    assert (other.model, parts(other)) == ("gpt-5.4", (900, 0, 0, 8))
    assert (open_end.id, parts(open_end)) == ("m4", (None, None, None, 44))
    assert open_end.usage is not None
    assert open_end.usage.flags == ("cache_split_unknown",)


def test_counters_that_begin_again_are_counted_from_zero(tmp_path: Path) -> None:
    lines = lines_of(RESUMED)
    lines[11]["data"]["modelMetrics"] = {
        "claude-sonnet-4-5": {
            "requests": {"count": 1},
            "usage": {"inputTokens": 2000, "outputTokens": 5, "cacheReadTokens": 0},
        }
    }
    calls, _ = read(SOURCE, write_lines(tmp_path / "events.jsonl", lines[:12]))
    assert parts(calls[1]) == (2000, 0, None, 5)


def test_without_a_shutdown_only_the_output_is_known(tmp_path: Path) -> None:
    calls, problems = read(SOURCE, write_lines(tmp_path / "events.jsonl", lines_of(RESUMED)[:4]))
    assert not problems
    assert [(call.id, parts(call)) for call in calls] == [("m1", (None, None, None, 17))]


def test_damage_is_counted_with_its_line(tmp_path: Path) -> None:
    lines = lines_of(RESUMED)
    lines[4]["data"]["modelMetrics"]["claude-sonnet-4-5"]["usage"]["cacheReadTokens"] = 10**6
    lines[11]["data"]["modelMetrics"]["gpt-5.4"] = {"usage": 5}
    lines[13]["data"] = "x"
    path = write_lines(tmp_path / "bad.jsonl", [3, *lines])
    path.write_bytes(path.read_bytes()[:-9])
    calls, problems = read(SOURCE, path)
    assert kinds(problems) == {
        "wrong_type": 2,
        "cache_exceeds_input": 1,
        "missing_usage": 1,
        "truncated_line": 1,
    }
    where = {kind: examples[0] for kind, _, examples in problems.items()}
    assert where["cache_exceeds_input"] == f"{path}:6"
    assert parts(calls[0])[0] is None


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_raises(tmp_path: Path, data: st.DataObject) -> None:
    lines = data.draw(damaged(lines_of(RESUMED)))
    assert_sound(read(SOURCE, write_lines(tmp_path / "damaged.jsonl", lines))[0])


def test_detection() -> None:
    assert_claims(SOURCE, RESUMED)


def test_usual_places_honour_the_override(tmp_path: Path) -> None:
    places = list(SOURCE.usual_places({}, tmp_path))
    assert tmp_path / ".copilot" / "session-state" in places
    assert tmp_path / ".copilot" / "otel" in places
    environment = {"COPILOT_HOME": "/x", "COPILOT_OTEL_FILE_EXPORTER_PATH": "/y/o.jsonl"}
    places = list(SOURCE.usual_places(environment, tmp_path))
    assert Path("/x/session-state") in places
    assert Path("/y/o.jsonl") in places
    assert not any(str(place).startswith(str(tmp_path)) for place in places)
