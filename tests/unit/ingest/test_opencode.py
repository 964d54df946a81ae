"""OpenCode: database, one-file-a-message storage and exports give the same calls."""

from __future__ import annotations

import json
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.sources.opencode import SOURCE
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

FOLDER = SAMPLES / "opencode"
EXPORT = FOLDER / "export.json"
MESSAGE = FOLDER / "storage" / "message" / "ses_9" / "msg_91.json"


def _infos() -> list[dict[str, Any]]:
    return [entry["info"] for entry in json.loads(EXPORT.read_text())["messages"]]


def _database(path: Path, infos: list[Any], *, sessions: bool = True) -> Path:
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER,"
        " data TEXT)"
    )
    if sessions:
        connection.execute("CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT)")
        connection.execute("INSERT INTO session VALUES ('ses_1', 'ses_0'), ('ses_0', NULL)")
    for number, info in enumerate(infos):
        if isinstance(info, dict):
            data = {k: v for k, v in info.items() if k not in ("id", "sessionID")}
            row = (info["id"], info["sessionID"], number, json.dumps(data))
        else:
            row = (f"bad_{number}", "ses_1", number, info)
        connection.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
    connection.commit()
    connection.close()
    return path


def test_reasoning_stands_beside_the_output_unless_the_total_says_otherwise() -> None:
    calls, problems = read(SOURCE, EXPORT)
    assert not problems
    assert [parts(call) for call in calls] == [
        (10, 0, 3000, 25),
        (12, 3000, 200, 30),
        (3500, 0, 0, 100),
        (9, 500, 0, 4),
    ]
    assert sum(call.reported_cost or 0 for call in calls) == Decimal("0.0261")
    assert [call.started_at for call in calls][:2] == [1777629601.0, 1777629660.0]
    assert calls[3].error is not None
    assert (calls[3].error.type, calls[3].error.status) == ("APIError", 529)


def test_a_summary_is_a_compaction() -> None:
    calls, _ = read(SOURCE, EXPORT)
    assert [call.purpose for call in calls] == ["subagent", "subagent", "compaction", "subagent"]
    assert [(mark.kind, mark.tokens_before) for mark in calls[3].boundaries] == [
        ("compaction", 3212)
    ]


def test_the_database_gives_what_the_export_gives(tmp_path: Path) -> None:
    path = _database(tmp_path / "opencode.db", _infos())
    from_db, problems = read(SOURCE, path)
    exported, _ = read(SOURCE, EXPORT)
    assert not problems
    assert [call.usage for call in from_db] == [call.usage for call in exported]
    assert [call.dedupe_key for call in from_db] == [call.dedupe_key for call in exported]
    assert [(call.session, call.lane) for call in from_db] == [("ses_0", "ses_1")] * 4


def test_a_database_without_sessions_has_no_subagents(tmp_path: Path) -> None:
    calls, _ = read(SOURCE, _database(tmp_path / "opencode.db", _infos(), sessions=False))
    assert {(call.session, call.lane) for call in calls} == {("ses_1", "main")}


def test_bad_rows_are_counted_with_their_id(tmp_path: Path) -> None:
    rows: list[Any] = [*_infos(), '{"role": "assist', None, "[1]"]
    calls, problems = read(SOURCE, _database(tmp_path / "opencode.db", rows))
    assert len(calls) == 4
    assert kinds(problems) == {"truncated_line": 1, "wrong_type": 2}
    where = {kind: examples[0] for kind, _, examples in problems.items()}
    assert "message[bad_5]" in where["truncated_line"]


def test_a_locked_database_is_a_problem_and_no_exception(tmp_path: Path) -> None:
    path = _database(tmp_path / "opencode.db", _infos())
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        assert_claims(SOURCE, path)
        calls, problems = read(SOURCE, path)
    finally:
        holder.close()
    assert calls == []
    assert kinds(problems) == {"unreadable_file": 1}
    assert "locked" in problems.items()[0][2][0]


def test_reading_changes_nothing_and_sees_the_pending_log(tmp_path: Path) -> None:
    path = _database(tmp_path / "opencode.db", _infos()[:2])
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    later = _infos()[2]
    row = (later["id"], "ses_1", 9, json.dumps(later))
    writer.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
    writer.commit()
    before = path.read_bytes()
    calls, problems = read(SOURCE, path)
    assert not problems
    assert [call.id for call in calls] == ["msg_1", "msg_2"]
    assert path.read_bytes() == before
    writer.close()


def test_foreign_and_broken_databases(tmp_path: Path) -> None:
    foreign = tmp_path / "other.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE message (id TEXT, body TEXT)")
    connection.commit()
    connection.close()
    calls, problems = read(SOURCE, foreign)
    assert calls == []
    assert kinds(problems) == {"unknown_format": 1}
    broken = tmp_path / "opencode.db"
    broken.write_bytes(foreign.read_bytes()[:1500])
    calls, problems = read(SOURCE, broken)
    assert calls == []
    assert kinds(problems) == {"unreadable_file": 1}
    assert read(SOURCE, tmp_path / "gone.db")[1].count("vanished_file") == 1


def test_stored_messages_are_one_session() -> None:
    user = MESSAGE.with_name("msg_90.json")
    calls, problems = read(SOURCE, MESSAGE)
    assert not problems
    assert [parts(call) for call in calls] == [(10, 100, 30, 25)]
    assert calls[0].dedupe_key == "opencode:msg_91"
    assert read(SOURCE, user)[0] == []
    assert SOURCE.group(user) == SOURCE.group(MESSAGE)


def test_damaged_documents_are_counted(tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes(EXPORT.read_bytes()[:-400])
    assert kinds(read(SOURCE, cut)[1]) == {"truncated_line": 1}
    document = json.loads(EXPORT.read_text())
    document["messages"][1]["info"]["tokens"]["cache"]["read"] = -5
    document["messages"][2]["info"]["tokens"] = 3
    document["messages"][3] = 7
    calls, problems = read(SOURCE, write_document(tmp_path / "bad.json", document))
    assert kinds(problems) == {"negative_part": 1, "wrong_type": 2}
    assert [call.usage is None for call in calls] == [False, True, False]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_raises(tmp_path: Path, data: st.DataObject) -> None:
    document = data.draw(damaged(json.loads(EXPORT.read_text())))
    assert_sound(read(SOURCE, write_document(tmp_path / "damaged.json", document))[0])


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damaged_row_raises(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "opencode.db"
    path.unlink(missing_ok=True)
    info = data.draw(damaged(_infos()[2]))
    assert_sound(read(SOURCE, _database(path, [json.dumps(info)]))[0])


def test_detection(tmp_path: Path) -> None:
    document = json.loads(EXPORT.read_text())
    document["info"]["title"] = "x" * 100_000
    files = [
        EXPORT,
        MESSAGE,
        MESSAGE.with_name("msg_90.json"),
        _database(tmp_path / "any-name.sqlite", _infos()),
        write_document(tmp_path / "long.json", document),
    ]
    assert_claims(SOURCE, *files)


@pytest.mark.parametrize("content", [b"SQLite format 3\x00" + b"\0" * 200, b"{}", b'{"id": "x"}'])
def test_detection_leaves_others_alone(tmp_path: Path, content: bytes) -> None:
    from cacheaudit.ingest.detect import head_of

    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert SOURCE.detect(head_of(path)) == 0


def test_usual_places_honour_the_override(tmp_path: Path) -> None:
    default = tmp_path / ".local" / "share" / "opencode"
    assert list(SOURCE.usual_places({}, tmp_path)) == [
        default / "opencode.db",
        default / "storage" / "message",
    ]
    other = tmp_path / "data"
    other.mkdir()
    for name in ("opencode.db", "opencode-dev.db"):
        (other / name).touch()
    assert list(SOURCE.usual_places({"OPENCODE_DATA_DIR": str(other)}, tmp_path)) == [
        other / "opencode-dev.db",
        other / "opencode.db",
        other / "storage" / "message",
    ]
