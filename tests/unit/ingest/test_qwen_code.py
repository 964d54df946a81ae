"""Qwen Code: Google's names over other APIs' counts, side chains, compression, forks."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.sources.qwen_code import SOURCE
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

CHAT = SAMPLES / "qwen_code" / "qw-1.jsonl"
MAY_1 = 1777629600.0  # 2026-05-01T10:00:00Z


def test_reasoning_inside_the_answer_is_not_added_again() -> None:
    calls, problems = read(SOURCE, CHAT)
    assert not problems
    by_id = {call.id: parts(call) for call in calls}
    assert by_id["a1"] == (1000, 0, None, 60)
    assert by_id["a2"] == (200, 1000, None, 60)
    assert by_id["s1"] == (300, 0, None, 5)


def test_a_missing_cached_count_is_zero_for_gemini_only() -> None:
    calls = {call.id: call for call in read(SOURCE, CHAT)[0]}
    assert parts(calls["a3"]) == (None, None, None, 10)
    assert calls["a3"].usage is not None
    assert calls["a3"].usage.flags == ("cache_split_unknown",)
    assert calls["a3"].usage.total_input == 400
    assert parts(calls["a4"]) == (500, 0, None, 15)
    assert [calls[name].provider for name in ("a3", "a4")] == ["qwen", "gemini"]


def test_lanes_boundaries_and_parents() -> None:
    calls = {call.id: call for call in read(SOURCE, CHAT)[0]}
    assert (calls["s1"].lane, calls["s1"].purpose) == ("agent-1", "subagent")
    assert calls["a2"].parent == "a1"
    assert calls["a3"].parent == "a2"
    assert [(m.kind, m.tokens_before) for m in calls["a3"].boundaries] == [("compaction", 1260)]
    assert calls["a2"].start_span == Span(MAY_1 + 5, MAY_1 + 9)


def test_a_fork_names_the_record_that_it_copied(tmp_path: Path) -> None:
    calls = {call.id: call for call in read(SOURCE, CHAT)[0]}
    assert calls["a4"].session == "qw-0"
    original = lines_of(CHAT)[-1]
    del original["forkedFrom"]
    original |= {"uuid": "orig-4", "sessionId": "qw-0"}
    source, _ = read(SOURCE, write_lines(tmp_path / "qw-0.jsonl", [original]))
    assert source[0].dedupe_key == calls["a4"].dedupe_key


def test_damage_is_counted_with_its_line(tmp_path: Path) -> None:
    lines = lines_of(CHAT)
    lines[1]["usageMetadata"]["promptTokenCount"] = -1
    lines[3]["usageMetadata"] = [1]
    path = write_lines(tmp_path / "bad.jsonl", ["x", *lines])
    path.write_bytes(path.read_bytes()[:-15])
    calls, problems = read(SOURCE, path)
    assert kinds(problems) == {"wrong_type": 2, "negative_part": 1, "truncated_line": 1}
    where = {kind: examples for kind, _, examples in problems.items()}
    assert where["negative_part"] == (f"{path}:3",)
    assert [example.split(" ")[0] for example in where["wrong_type"]] == [
        f"{path}:1:",
        f"{path}:5:",
    ]
    assert [call.id for call in calls] == ["a1", "s1", "a3"]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_raises(tmp_path: Path, data: st.DataObject) -> None:
    lines = data.draw(damaged(lines_of(CHAT)))
    assert_sound(read(SOURCE, write_lines(tmp_path / "damaged.jsonl", lines))[0])


def test_detection_is_surer_than_the_envelope_it_shares() -> None:
    assert_claims(SOURCE, CHAT)


def test_usual_places_honour_the_override(tmp_path: Path) -> None:
    assert list(SOURCE.usual_places({}, tmp_path)) == [tmp_path / ".qwen" / "projects"]
    assert list(SOURCE.usual_places({"QWEN_DATA_DIR": "/x"}, tmp_path)) == [Path("/x/projects")]
