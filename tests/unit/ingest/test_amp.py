"""Amp: ledger events joined with the messages that they name."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.sources.amp import SOURCE
from tests.unit.ingest.agent_samples import (
    SAMPLES,
    assert_claims,
    assert_sound,
    damaged,
    kinds,
    parts,
    read,
    write_document,
)

THREAD = SAMPLES / "amp" / "threads" / "T-1.json"


def test_events_and_messages_are_joined_and_none_is_counted_twice() -> None:
    calls, problems = read(SOURCE, THREAD)
    assert not problems
    assert [(call.id, parts(call)) for call in calls] == [
        ("ev1", (10, 100, 5000, 200)),
        ("ev2", (None, None, None, 9)),
        ("T-1:3", (4, 5100, 0, 50)),
    ]
    assert [call.model for call in calls] == [
        "claude-opus-4-5",
        "gemini-2.5-flash",
        "claude-opus-4-5",
    ]
    assert [(call.lane, call.purpose) for call in calls] == [
        ("main", "main"),
        ("title", "other"),
        ("main", "main"),
    ]


def test_an_event_alone_does_not_know_the_cache() -> None:
    event = read(SOURCE, THREAD)[0][1]
    assert event.usage is not None
    assert (event.usage.total_input, event.usage.cache_read) == (700, None)
    assert event.usage.flags == ("cache_split_unknown",)


def test_credits_are_no_money() -> None:
    calls, _ = read(SOURCE, THREAD)
    assert [call.reported_cost for call in calls] == [None, None, None]
    assert [call.extra.get("credits") for call in calls] == ["1.25", "0.01", "0.5"]


def test_damage_is_counted(tmp_path: Path) -> None:
    thread = json.loads(THREAD.read_text())
    thread["messages"][1]["usage"] = "x"
    thread["messages"][2]["usage"]["inputTokens"] = -4
    thread["usageLedger"]["events"].append(5)
    calls, problems = read(SOURCE, write_document(tmp_path / "T-bad.json", thread))
    assert kinds(problems) == {"wrong_type": 2, "negative_part": 1}
    assert len(calls) == 3
    cut = tmp_path / "T-cut.json"
    cut.write_bytes(THREAD.read_bytes()[:-30])
    assert kinds(read(SOURCE, cut)[1]) == {"truncated_line": 1}


def test_encodings_depth_and_absence_are_handled(tmp_path: Path) -> None:
    expected = [parts(call) for call in read(SOURCE, THREAD)[0]]
    text = THREAD.read_text()
    marked = tmp_path / "T-bom.json"
    marked.write_text(text, encoding="utf-8-sig")
    calls, problems = read(SOURCE, marked)
    assert [parts(call) for call in calls] == expected
    assert not problems
    wide = tmp_path / "T-16.json"
    wide.write_text(text, encoding="utf-16")
    calls, problems = read(SOURCE, wide)
    assert [parts(call) for call in calls] == expected
    assert kinds(problems) == {"encoding": 1}
    mixed = tmp_path / "T-mixed.json"
    mixed.write_bytes(text.encode().replace(b'"claude-opus-4-5"', b'"claude-opus-4-5\xff"', 1))
    calls, problems = read(SOURCE, mixed)
    assert [parts(call) for call in calls] == expected
    assert kinds(problems) == {"encoding": 1}
    deep = tmp_path / "T-deep.json"
    deep.write_text('{"id":"T-9","messages":[' + "[" * 100_000 + "]" * 100_000 + "]}")
    assert kinds(read(SOURCE, deep)[1]) == {"too_deep": 1}
    assert kinds(read(SOURCE, tmp_path / "T-gone.json")[1]) == {"vanished_file": 1}


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_raises(tmp_path: Path, data: st.DataObject) -> None:
    thread = data.draw(damaged(json.loads(THREAD.read_text())))
    assert_sound(read(SOURCE, write_document(tmp_path / "T-x.json", thread))[0])


def test_detection(tmp_path: Path) -> None:
    thread = json.loads(THREAD.read_text())
    thread["messages"][0]["content"] = "x" * 100_000
    assert_claims(SOURCE, THREAD, write_document(tmp_path / "T-long.json", thread))


def test_usual_places_honour_the_override(tmp_path: Path) -> None:
    default = tmp_path / ".local" / "share" / "amp" / "threads"
    assert list(SOURCE.usual_places({}, tmp_path)) == [default]
    assert list(SOURCE.usual_places({"AMP_DATA_DIR": "/x"}, tmp_path)) == [Path("/x/threads")]
