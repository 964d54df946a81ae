"""Kimi CLI: disjoint counts, repeated updates, nested subagent events."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.sources.kimi_cli import SOURCE
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

FOLDER = SAMPLES / "kimi_cli" / "g"
WIRE = FOLDER / "s-1" / "wire.jsonl"
MAY_1 = 1777629600.0  # 2026-05-01T10:00:00Z


def test_counts_are_disjoint_and_a_repeated_update_wins() -> None:
    calls, problems = read(SOURCE, WIRE)
    assert not problems
    assert [(call.id, call.lane, parts(call)) for call in calls] == [
        ("m1", "main", (1244, 69376, 0, 155)),
        ("n1", "sub", (5, 6, 7, 8)),
        ("m2", "main", (900, 0, 50, 3)),
    ]
    assert calls[0].usage is not None
    assert calls[0].usage.total_input == 70_620
    assert {call.session for call in calls} == {"s-1"}


def test_times_and_compaction() -> None:
    first, _, last = read(SOURCE, WIRE)[0]
    assert first.start_span == Span(MAY_1, MAY_1 + 2)
    assert last.start_span == Span(MAY_1 + 9, MAY_1 + 12)
    assert [(m.kind, m.tokens_before) for m in last.boundaries] == [("compaction", 70_620)]


def test_usage_records_of_the_newer_program() -> None:
    (call,) = read(SOURCE, FOLDER / "s-2" / "wire.jsonl")[0]
    assert parts(call) == (100, 20, 5, 10)
    assert call.model == "kimi-code/k3"


def test_damage_is_counted_with_its_line(tmp_path: Path) -> None:
    lines = lines_of(WIRE)
    lines[3]["message"]["payload"]["token_usage"] = "x"
    lines[4]["message"]["payload"]["token_usage"]["output"] = -1
    path = write_lines(tmp_path / "s" / "wire.jsonl", [None, 1, *lines])
    path.write_bytes(path.read_bytes()[:-12])
    calls, problems = read(SOURCE, path)
    assert kinds(problems) == {"wrong_type": 2, "negative_part": 1, "truncated_line": 1}
    where = {kind: examples for kind, _, examples in problems.items()}
    assert where["negative_part"] == (f"{path}:7",)
    assert [(call.id, parts(call)) for call in calls] == [
        ("m1", (1244, 69376, 0, None)),
        ("n1", (5, 6, 7, 8)),
    ]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_raises(tmp_path: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["s-1", "s-2"]))
    lines = data.draw(damaged(lines_of(FOLDER / name / "wire.jsonl")))
    assert_sound(read(SOURCE, write_lines(tmp_path / "damaged.jsonl", lines))[0])


def test_detection() -> None:
    assert_claims(SOURCE, WIRE, FOLDER / "s-2" / "wire.jsonl")


def test_usual_places_honour_the_override(tmp_path: Path) -> None:
    assert list(SOURCE.usual_places({}, tmp_path)) == [tmp_path / ".kimi" / "sessions"]
    assert list(SOURCE.usual_places({"KIMI_SHARE_DIR": "/x"}, tmp_path)) == [Path("/x/sessions")]
