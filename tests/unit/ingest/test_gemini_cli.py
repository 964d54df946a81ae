"""Gemini CLI: recordings in both shapes, subagents, headless statistics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.sources.gemini_cli import SOURCE
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
    write_document,
    write_lines,
)

CHATS = SAMPLES / "gemini_cli" / "chats"
WHOLE = CHATS / "session-2026-05-01T10-00-aaaa.json"
LINES = CHATS / "session-2026-05-01T11-00-bbbb.jsonl"
HEADLESS = SAMPLES / "gemini_cli" / "headless.json"
MAY_1 = 1777629600.0  # 2026-05-01T10:00:00Z


def test_input_holds_the_cached_tokens_and_thoughts_are_output() -> None:
    calls, problems = read(SOURCE, WHOLE)
    assert not problems
    # 9,200 of which 8,192 cached, and 25 tokens of tool prompts beside them.
    assert [parts(call) for call in calls] == [(9000, 0, None, 100), (1033, 8192, None, 40)]
    assert [call.usage.total_input for call in calls if call.usage] == [9000, 9225]
    assert [call.usage.reasoning for call in calls if call.usage] == [60, 10]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"input": 10, "cached": 5, "output": 20, "total": 30}, (5, 5, None, 20)),
        # Thoughts inside the answer, tool prompts inside the input: the total says so.
        (
            {"input": 10, "cached": 0, "output": 20, "thoughts": 8, "tool": 4, "total": 30},
            (10, 0, None, 20),
        ),
        ({"input": 10, "cached": 0, "output": 20, "thoughts": 8, "total": 38}, (10, 0, None, 28)),
        ({"input": 10, "cached": 0, "output": 20, "thoughts": 8}, (10, 0, None, 28)),
    ],
)
def test_the_total_decides_what_stands_beside(
    tmp_path: Path, tokens: dict[str, int], expected: tuple[int | None, ...]
) -> None:
    document = json.loads(WHOLE.read_text())
    document["messages"][1]["tokens"] = tokens
    calls, problems = read(SOURCE, write_document(tmp_path / "x.json", document))
    assert not problems
    assert parts(calls[0]) == expected


def test_of_rewritten_records_the_last_counts() -> None:
    calls, problems = read(SOURCE, LINES)
    assert not problems
    assert [(call.id, parts(call)) for call in calls] == [
        ("g1", (1000, 0, None, 70)),
        ("g3", (200, 900, None, 25)),
    ]
    # What was taken back was paid for, and the next prompt does not extend it.
    assert [mark.kind for mark in calls[1].boundaries] == ["branch"]


def test_the_start_lies_between_what_was_asked_and_what_came() -> None:
    calls, _ = read(SOURCE, WHOLE)
    assert [call.start_span for call in calls] == [
        Span(MAY_1, MAY_1 + 8),
        Span(MAY_1 + 9, MAY_1 + 20),
    ]


def test_a_subagent_has_its_own_lane_in_the_parent_session() -> None:
    calls, _ = read(SOURCE, CHATS / "gem-2" / "sub-1.jsonl")
    assert [(call.session, call.lane, call.purpose) for call in calls] == [
        ("gem-2", "sub-1", "subagent")
    ]


def test_headless_statistics_are_sums() -> None:
    calls, problems = read(SOURCE, HEADLESS)
    assert not problems
    assert [(call.model, call.requests, parts(call)) for call in calls] == [
        ("gemini-2.5-pro", 3, (1000, 2000, None, 120)),
        ("gemini-2.5-flash", 1, (500, 0, None, 5)),
    ]


def test_damage_is_counted(tmp_path: Path) -> None:
    document = json.loads(WHOLE.read_text())
    document["messages"][1]["tokens"]["cached"] = 99_999
    document["messages"][2]["tokens"]["input"] = "9200"
    document["messages"].append("x")
    calls, problems = read(SOURCE, write_document(tmp_path / "bad.json", document))
    assert kinds(problems)["cache_exceeds_input"] == 1
    assert kinds(problems)["wrong_type"] == 2
    assert parts(calls[0]) == (None, 99_999, None, 100)
    cut = tmp_path / "cut.json"
    cut.write_bytes(WHOLE.read_bytes()[:-40])
    assert kinds(read(SOURCE, cut)[1]) == {"truncated_line": 1}
    lines = tmp_path / "cut.jsonl"
    lines.write_bytes(LINES.read_bytes()[:-10])
    calls, problems = read(SOURCE, lines)
    assert [call.id for call in calls] == ["g1"]
    assert kinds(problems) == {"truncated_line": 1}
    assert problems.items()[0][2][0].startswith(f"{lines}:9")


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_raises(tmp_path: Path, data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([WHOLE, HEADLESS]))
    document = data.draw(damaged(json.loads(source.read_text())))
    assert_sound(read(SOURCE, write_document(tmp_path / "damaged.json", document))[0])
    lines = data.draw(damaged(lines_of(LINES)))
    assert_sound(read(SOURCE, write_lines(tmp_path / "damaged.jsonl", lines))[0])


def test_detection(tmp_path: Path) -> None:
    document = json.loads(WHOLE.read_text())
    document["messages"][0]["content"] = "x" * 100_000
    long = write_document(tmp_path / "long.json", document)
    assert_claims(SOURCE, WHOLE, LINES, CHATS / "gem-2" / "sub-1.jsonl", HEADLESS, long)


def test_usual_places_honour_the_override(tmp_path: Path) -> None:
    assert list(SOURCE.usual_places({}, tmp_path)) == [tmp_path / ".gemini" / "tmp"]
    assert list(SOURCE.usual_places({"GEMINI_DATA_DIR": "/x"}, tmp_path)) == [Path("/x/tmp")]
