"""Pi sessions: totals and stored cost of real sessions, keep-alive, summaries, branches, forks."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.sources.pi import SOURCE
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

TREE = SAMPLES / "pi" / "tree.jsonl"
MAY_1 = 1777629600.0  # 2026-05-01T10:00:00Z


@pytest.mark.shared
@pytest.mark.parametrize("name", ["a", "b"])
def test_real_sessions_total_as_expected(shared: Path, name: str) -> None:
    key = f"sessions/pi/{name}.jsonl"
    expected = json.loads((shared / "data" / "expected.json").read_text())["files"][key]
    calls, problems = read(SOURCE, shared / "data" / key)
    assert not problems
    assert len(calls) == expected["requests"]
    sums = [sum(parts(call)[n] or 0 for call in calls) for n in range(4)]
    assert sums == [
        expected["uncached_input"],
        expected["cache_read"],
        expected["cache_write"],
        expected["output"],
    ]
    cost = sum((call.reported_cost or Decimal(0) for call in calls), Decimal(0))
    assert str(round(cost, 6)) == expected["stored_cost_usd"]
    marks = [mark.kind for call in calls for mark in call.boundaries]
    assert marks == ["compaction"] * expected.get("compactions", 0)
    assert len({call.dedupe_key for call in calls}) == len(calls)


@pytest.mark.shared
def test_real_session_keeps_aborted_calls(shared: Path) -> None:
    calls, _ = read(SOURCE, shared / "data" / "sessions" / "pi" / "a.jsonl")
    aborted = [call for call in calls if call.stop_reason == "aborted"]
    assert len(aborted) == 21
    assert all(call.error is not None and call.error.type == "aborted" for call in aborted)
    assert parts(calls[0]) == (0, 0, 0, 0)
    assert (calls[0].provider, calls[0].model) == ("openai", "gpt-5.1-codex")


@pytest.mark.shared
def test_real_session_knows_the_request_start(shared: Path) -> None:
    calls, _ = read(SOURCE, shared / "data" / "sessions" / "pi" / "a.jsonl")
    # Asked at 23:33:50.791; the answer's own stamp is 2 ms later, its line was written at :54.572.
    assert (calls[1].started_at, calls[1].ended_at) == (1763681630.793, 1763681634.572)
    assert all(call.started_at is not None for call in calls)


def test_every_kind_of_usage_is_a_call_of_its_own() -> None:
    calls, problems = read(SOURCE, TREE)
    assert not problems
    assert [(call.id, call.purpose, call.lane) for call in calls] == [
        ("msg_1", "main", "main"),
        ("r1", "subagent", "call_1"),
        ("a2", "main", "main"),
        ("w1", "keep_alive", "main"),
        ("a3", "main", "main"),
        ("c1", "compaction", "compaction"),
        ("a4", "main", "main"),
        ("a5", "main", "main"),
    ]
    assert [parts(call) for call in calls[:4]] == [
        (10, 0, 2000, 20),
        (7, 0, 0, 3),
        (12, 2000, 100, 30),
        (0, 2100, 0, 1),
    ]
    stored = [Decimal(n) for n in ("0.0131", "0.0002", "0.002", "0.00107", "0", "0.0132")]
    assert [call.reported_cost for call in calls[:6]] == stored


def test_one_hour_writes_are_part_of_the_writes() -> None:
    usage = read(SOURCE, TREE)[0][0].usage
    assert usage is not None
    assert (usage.write_1h, usage.write_other, usage.cache_write) == (1500, 500, 2000)


def test_the_tree_says_what_a_call_extends() -> None:
    calls, _ = read(SOURCE, TREE)
    above = {call.id: call.parent for call in calls}
    assert above["a2"] == "msg_1"
    assert above["a3"] == "a2"
    assert above["a5"] == "msg_1"
    marks = {call.id: [mark.kind for mark in call.boundaries] for call in calls}
    assert marks["a4"] == ["compaction"]
    assert marks["a5"] == ["branch"]
    assert not any(kind for ident, kind in marks.items() if ident not in ("a4", "a5"))


def test_a_fork_repeats_the_keys_of_what_it_copied(tmp_path: Path) -> None:
    lines = lines_of(TREE)
    header = {**lines[0], "id": "pi-2", "parentSession": "x"}
    copied = [header, *lines[1:7]]
    more = lines_of(TREE)[-1]
    more |= {"id": "b1", "timestamp": "2026-05-01T11:00:00.000Z"}
    fork, _ = read(SOURCE, write_lines(tmp_path / "fork.jsonl", [*copied, more]))
    parent, _ = read(SOURCE, TREE)
    shared_keys = {call.dedupe_key for call in fork} & {call.dedupe_key for call in parent}
    assert len(fork) == 4
    assert len(shared_keys) == 3


def test_damage_is_counted_with_its_line(tmp_path: Path) -> None:
    lines = lines_of(TREE)
    lines[4]["message"]["usage"]["input"] = -10
    lines[6]["message"]["usage"] = "SECRET-TEXT"
    del lines[9]["message"]["usage"]
    path = write_lines(tmp_path / "bad.jsonl", lines)
    path.write_bytes(path.read_bytes()[:-30])
    calls, problems = read(SOURCE, path)
    assert kinds(problems) == {
        "negative_part": 1,
        "wrong_type": 1,
        "missing_usage": 1,
        "truncated_line": 1,
    }
    where = {kind: examples[0] for kind, _, examples in problems.items()}
    assert where["negative_part"] == f"{path}:5"
    assert where["wrong_type"].startswith(f"{path}:7")
    assert where["missing_usage"].startswith(f"{path}:10")
    assert len(calls) == 7
    assert "SECRET" not in repr(calls) + repr(problems.items())


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_raises(tmp_path: Path, data: st.DataObject) -> None:
    lines = data.draw(damaged(lines_of(TREE)))
    assert_sound(read(SOURCE, write_lines(tmp_path / "damaged.jsonl", lines))[0])


@pytest.mark.shared
def test_detection_of_real_sessions(shared: Path) -> None:
    folder = shared / "data" / "sessions" / "pi"
    assert_claims(SOURCE, folder / "a.jsonl", folder / "b.jsonl")


def test_detection() -> None:
    assert_claims(SOURCE, TREE)


def test_usual_places_honour_the_override(tmp_path: Path) -> None:
    assert list(SOURCE.usual_places({}, tmp_path)) == [tmp_path / ".pi" / "agent" / "sessions"]
    places = list(SOURCE.usual_places({"PI_AGENT_DIR": "/x,/y/sessions"}, tmp_path))
    assert places == [Path("/x/sessions"), Path("/y/sessions")]
