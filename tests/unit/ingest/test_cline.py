"""Cline and Roo Code: both counting conventions, deleted and cancelled requests."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.sources.cline import SOURCE
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

TASK = SAMPLES / "cline" / "task-1" / "ui_messages.json"
MAY_1 = 1777629600.0  # 2026-05-01T10:00:00Z


def test_parts_follow_the_protocol_that_the_record_names() -> None:
    calls, problems = read(SOURCE, TASK)
    assert [parts(call) for call in calls if call.usage] == [
        (12, 0, 4000, 80),
        (20, 4000, 300, 40),
        (400, 600, 0, 10),  # 1,000 that hold the 600 read
        (5, 8, 7, 6),
    ]
    assert sum(call.reported_cost or 0 for call in calls) == Decimal("0.020636")
    assert kinds(problems) == {"missing_usage": 1}


def test_requests_start_when_they_say() -> None:
    calls, _ = read(SOURCE, TASK)
    assert [call.started_at for call in calls[:2]] == [MAY_1 + 1, MAY_1 + 60]
    assert {call.session for call in calls} == {"task-1"}


def test_models_come_from_the_message_or_the_task() -> None:
    calls, _ = read(SOURCE, TASK)
    assert [(call.provider, call.surface, call.model) for call in calls[:3]] == [
        ("anthropic", "claude_api", "claude-sonnet-4-5"),
        ("anthropic", "openrouter", "anthropic/claude-sonnet-4.5"),
        ("openai", "openai", "gpt-5.4"),
    ]


def test_what_happened_between_requests() -> None:
    calls, _ = read(SOURCE, TASK)
    assert [(m.kind, m.tokens_before) for m in calls[2].boundaries] == [("compaction", 4320)]
    cancelled, deleted, running = calls[3:]
    assert cancelled.error is not None
    assert cancelled.error.type == "user_cancelled"
    assert cancelled.usage is None
    assert (deleted.requests, deleted.lane) == (None, "deleted")
    assert [m.kind for m in running.boundaries] == ["branch"]


def test_damage_is_counted(tmp_path: Path) -> None:
    messages = json.loads(TASK.read_text())
    messages[1]["text"] = '{"tokensIn": 5, "tok'
    messages[2]["text"] = json.dumps({"tokensIn": -5, "tokensOut": True})
    messages[4]["text"] = 5
    messages.append(None)
    messages.append("SECRET-TEXT")
    path = write_document(tmp_path / "t" / "ui_messages.json", messages[:5] + messages[8:])
    calls, problems = read(SOURCE, path)
    assert kinds(problems) == {"truncated_line": 1, "negative_part": 1, "wrong_type": 3}
    assert len(calls) == 1
    assert "SECRET" not in repr(problems.items())
    cut = tmp_path / "cut.json"
    cut.write_bytes(TASK.read_bytes()[:-50])
    assert kinds(read(SOURCE, cut)[1]) == {"truncated_line": 1}
    other = write_document(tmp_path / "other.json", {"a": 1})
    assert kinds(read(SOURCE, other)[1]) == {"wrong_type": 1}


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_raises(tmp_path: Path, data: st.DataObject) -> None:
    messages = json.loads(TASK.read_text())
    request = json.loads(messages[2]["text"])
    messages[2]["text"] = json.dumps(data.draw(damaged(request)))
    metadata = json.loads(TASK.with_name("task_metadata.json").read_text())
    write_document(tmp_path / "task_metadata.json", data.draw(damaged(metadata)))
    path = write_document(tmp_path / "ui_messages.json", data.draw(damaged(messages)))
    assert_sound(read(SOURCE, path)[0])


def test_companion_files_are_known_and_count_nothing(tmp_path: Path) -> None:
    history = tmp_path / "api_conversation_history.json"
    write_document(history, [{"role": "user", "content": [{"type": "text", "text": "x"}]}])
    metadata = TASK.with_name("task_metadata.json")
    assert_claims(SOURCE, TASK, history, metadata)
    for path in (history, metadata):
        calls, problems = read(SOURCE, path)
        assert calls == []
        assert not problems


def test_usual_places_honour_the_override(tmp_path: Path) -> None:
    places = list(SOURCE.usual_places({}, tmp_path))
    storage = tmp_path / ".config" / "Code" / "User" / "globalStorage"
    assert storage / "saoudrizwan.claude-dev" / "tasks" in places
    assert storage / "rooveterinaryinc.roo-cline" / "tasks" in places
    assert list(SOURCE.usual_places({"CLINE_DATA_DIR": "/x"}, tmp_path)) == [Path("/x/tasks")]
