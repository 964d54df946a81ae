"""A session that stands in several files is one session, in totals and in an audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.inputs import silent
from tests.unit.cases.bills import lines, messages_usage, transcript_line
from tests.unit.cli.helpers import run

SAMPLES = Path(__file__).resolve().parents[3] / "fixtures" / "sessions" / "agents"
UUID = "6e5562e7-72e5-4f42-a1f0-82373e25e7fb"


def _found(home: Path, path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return calls by session, of `usage` and of `audit`."""
    totals = json.loads(run(home, "usage", str(path), "--json", "--by", "session").stdout)
    audit = json.loads(run(home, "audit", str(path), "--json").stdout)
    by_usage = {group["key"]: group["totals"]["calls"] for group in totals["groups"]}
    by_audit = {group["key"]: group["totals"]["calls"] for group in audit["by_session"]}
    assert totals["scope"]["sessions"] == audit["scope"]["sessions"] == len(by_usage)
    return by_usage, by_audit


def _handed_out(path: Path) -> list[str]:
    """Return the sessions as a diagnosis gets them."""
    return [session.id for session in Corpus([path], Problems(), silent).sessions()]


@pytest.mark.parametrize("agent", ["codex", "gemini_cli"])
def test_files_of_subagents_belong_to_their_session(tmp_path: Path, agent: str) -> None:
    by_usage, by_audit = _found(tmp_path, SAMPLES / agent)
    assert by_usage == by_audit
    handed_out = _handed_out(SAMPLES / agent)
    assert len(handed_out) == len(set(handed_out)) == len(by_usage)


def test_a_session_resumed_in_another_folder_goes_on(tmp_path: Path) -> None:
    for folder, ident in (("a", "m1"), ("b", "m2")):
        row: dict[str, Any] = transcript_line(ident, messages_usage(1, 2, 3, 4), sessionId=UUID)
        lines(tmp_path / "projects" / folder / f"{UUID}.jsonl", [row])
    by_usage, by_audit = _found(tmp_path, tmp_path / "projects")
    assert by_usage == by_audit == {UUID: 2}
    assert _handed_out(tmp_path / "projects") == [UUID]


def test_files_of_one_name_are_not_one_session(tmp_path: Path) -> None:
    for folder, session in (("a", "s1"), ("b", "s2")):
        row = transcript_line(f"m-{folder}", messages_usage(1, 2, 3, 4), sessionId=session)
        lines(tmp_path / folder / "x.jsonl", [row])
    assert _found(tmp_path, tmp_path)[0] == {"s1": 1, "s2": 1}
    assert _handed_out(tmp_path) == ["s1", "s2"]


def test_a_fork_read_after_its_parent_adds_only_its_own(tmp_path: Path) -> None:
    # The fork's id sorts before its parent's; the order of the files decides.
    calls = _handed_out(SAMPLES / "codex")
    assert calls.index("thread-a") < calls.index("thread-b")


def test_projects_are_named_alike_from_files_and_from_a_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    assert run(tmp_path, "import", str(SAMPLES / "codex"), "--db", url).exit_code == 0
    found = []
    for source in ([str(SAMPLES / "codex")], ["--db", url]):
        result = run(tmp_path, "usage", *source, "--json", "--by", "project")
        groups = json.loads(result.stdout)["groups"]
        found.append({group["key"]: group["totals"]["calls"] for group in groups})
    assert sum(found[0].values()) == sum(found[1].values())
    assert found[0].keys() == found[1].keys()
