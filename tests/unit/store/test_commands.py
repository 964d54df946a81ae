"""``cacheaudit import`` and ``export`` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cacheaudit.cli import main
from cacheaudit.cli._machine import Machine
from cacheaudit.model.call import Call
from cacheaudit.model.clock import FixedClock
from cacheaudit.model.record import RecordWriter
from cacheaudit.model.usage import Usage


@pytest.fixture
def session_file(tmp_path: Path) -> Path:
    writer = RecordWriter()
    calls = [
        Call(
            id=f"c{n}",
            session="s",
            started_at=1.7e9 + n,
            dedupe_key=f"k{n}",
            usage=Usage(total_input=10 + n, uncached_input=10 + n, cache_read=0, output=n),
        )
        for n in range(3)
    ]
    path = tmp_path / "in" / "a.session.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(writer.record(call)) + "\n" for call in calls))
    return path


def run(tmp_path: Path, *arguments: object, **environment: str) -> Result:
    machine = Machine(
        {"XDG_DATA_HOME": str(tmp_path / "data"), **environment}, tmp_path, FixedClock(5.0)
    )
    return CliRunner().invoke(main, [str(a) for a in arguments], obj=machine)


def test_import_then_export(tmp_path: Path, session_file: Path) -> None:
    first = run(tmp_path, "import", session_file, "--json")
    assert first.exit_code == 0, first.stderr
    database = tmp_path / "data" / "cacheaudit" / "cacheaudit.db"
    assert json.loads(first.stdout) == {
        "schema": "cacheaudit.import/1",
        "db": f"sqlite:///{database}",
        "files_seen": 1,
        "files_skipped": 0,
        "files_continued": 0,
        "files_read": 1,
        "calls_new": 3,
        "calls_updated": 0,
        "calls_unchanged": 0,
        "problems": [],
    }
    second = run(tmp_path, "import", session_file)
    assert second.exit_code == 0
    assert second.stdout == ""
    assert "0 read, 0 continued, 1 skipped" in second.stderr
    out = tmp_path / "out.session.jsonl"
    exported = run(tmp_path, "export", "--session", "s", "-o", out)
    assert exported.exit_code == 0, exported.stderr
    assert [json.loads(x) for x in out.read_text().splitlines()] == [
        json.loads(x) for x in session_file.read_text().splitlines()
    ]
    assert "1 session, 3 calls" in exported.stderr
    assert run(tmp_path, "export", "--quiet").stdout == out.read_text()


def test_export_of_files_leaves_the_store_alone(tmp_path: Path, session_file: Path) -> None:
    result = run(tmp_path, "export", session_file)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 3
    assert not (tmp_path / "data").exists()


def test_the_store_can_be_named(tmp_path: Path, session_file: Path) -> None:
    assert run(tmp_path, "import", session_file, "--db", tmp_path / "mine.db").exit_code == 0
    assert (tmp_path / "mine.db").is_file()
    assert not (tmp_path / "data").exists()
    result = run(tmp_path, "export", CACHEAUDIT_DB=f"sqlite:///{tmp_path / 'mine.db'}")
    assert len(result.stdout.splitlines()) == 3


def test_problems_are_told(tmp_path: Path, session_file: Path) -> None:
    with session_file.open("a") as stream:
        stream.write("{half a li")
    result = run(tmp_path, "import", session_file)
    assert result.exit_code == 0
    assert "Problem: truncated_line, 1 times" in result.stderr
    assert f"{session_file}:4" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["import", "missing.jsonl"], "There is no 'missing.jsonl'"),
        (["import"], "No agent keeps sessions"),
        (["export"], "There is no store"),
        (["import", "IN", "--db", "nosuch://x/y"], "nosuch"),
        (["import", "TEXT"], "No source recognises"),
    ],
)
def test_bad_use_ends_with_two(
    tmp_path: Path, session_file: Path, arguments: list[str], words: str
) -> None:
    text = tmp_path / "notes.jsonl"
    text.write_text("only words\n")
    named = {"IN": str(session_file), "TEXT": str(text)}
    result = run(tmp_path, *(named.get(argument, argument) for argument in arguments))
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unwritable_target_is_told(tmp_path: Path, session_file: Path) -> None:
    result = run(tmp_path, "export", session_file, "-o", tmp_path / "no" / "folder.jsonl")
    assert result.exit_code == 2
    assert "Cannot write" in result.stderr
