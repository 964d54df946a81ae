"""Files found, recognised and gathered into sessions; copies counted once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.files import find_files
from cacheaudit.ingest.gather import gather
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.seen import SeenKeys
from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage


def line(mid: str, output: int = 7, session: str = "s", second: int = 0) -> str:
    """One transcript line of one response."""
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
    }
    return json.dumps(
        {
            "sessionId": session,
            "message": {"model": "claude-opus-5-5", "id": mid, "content": [], "usage": usage},
            "requestId": f"r{mid}",
            "type": "assistant",
            "uuid": mid,
            "timestamp": f"2026-11-01T00:00:{second:02d}.000Z",
        }
    )


def corpus(*paths: Path) -> tuple[Corpus, Problems, list[tuple[int, int]]]:
    """Open a corpus that notes its progress."""
    problems, progress = Problems(), []
    return Corpus(paths, problems, lambda *step: progress.append(step)), problems, progress


def total(opened: Corpus) -> tuple[int, int]:
    """Sum (calls, output) the way a total does."""
    calls = output = 0
    for _, record, more in opened.usages():
        calls += more is None
        output += (record.usage.output or 0) if more is None else more
    return calls, output


@pytest.mark.shared
def test_an_earlier_save_adds_nothing(shared: Path) -> None:
    folder = shared / "data" / "sessions" / "claude_code"
    expected = json.loads((shared / "data" / "expected.json").read_text())["files"]
    whole = expected["sessions/claude_code/c.jsonl"]
    for paths in (
        [folder / "c.jsonl", folder / "d.jsonl"],
        [folder / "d.jsonl", folder / "c.jsonl"],
    ):
        opened, _, _ = corpus(*paths)
        assert total(opened) == (whole["requests"], whole["output"])


def test_copies_across_files_count_once_and_the_highest_output_wins(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join([line("m1", 5), line("m2", 8)]))
    (tmp_path / "b.jsonl").write_text("\n".join([line("m1", 9), line("m2", 8), line("m3", 1)]))
    opened, _, _ = corpus(tmp_path)
    assert total(opened) == (3, 9 + 8 + 1)
    assert opened.seen.repeated == 2


def test_sessions_hand_out_amendments_for_better_copies(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line("m1", 5))
    (tmp_path / "b.jsonl").write_text(line("m1", 9))
    opened, _, _ = corpus(tmp_path)
    calls = [call for session in opened.sessions() for call in session.calls]
    assert [call.usage.output for call in calls] == [5]
    assert [(a.call.id, a.more_output) for a in opened.amendments] == [("m1", 4)]


def test_subagents_join_their_session(tmp_path: Path) -> None:
    (tmp_path / "abc.jsonl").write_text(line("m1", session="abc"))
    sub = tmp_path / "abc" / "subagents"
    sub.mkdir(parents=True)
    (sub / "agent-1.jsonl").write_text(line("m2", session="abc", second=3))
    (tmp_path / "abcd.jsonl").write_text(line("m3", session="abcd"))
    opened, _, progress = corpus(tmp_path)
    sessions = list(opened.sessions())
    assert {s.id: [c.lane for c in s.calls] for s in sessions} == {
        "abc": ["main", "agent-1"],
        "abcd": ["main"],
    }
    assert progress[-1] == (opened.total_bytes, opened.total_bytes)


def test_loops_and_vanished_files_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "projects"
    folder.mkdir()
    (folder / "a.jsonl").write_text(line("m1"))
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "self.jsonl").symlink_to(folder / "self.jsonl")
    (folder / "gone.jsonl").write_text(line("m2"))
    (folder / "copy.jsonl").symlink_to(folder / "a.jsonl")
    opened, problems, _ = corpus(folder)
    (folder / "gone.jsonl").unlink()
    assert total(opened) == (1, 7)
    assert problems.count("symlink_loop") == 2
    assert problems.count("vanished_file") == 1


def test_a_refused_open_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_text(line("m1"))
    (tmp_path / "b.jsonl").write_text(line("m2"))
    opened, problems, _ = corpus(tmp_path)
    real = Path.open

    def refuse(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.name == "b.jsonl":
            raise PermissionError(13, "Permission denied")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    assert total(opened) == (1, 7)
    assert problems.count("unreadable_file") == 1


def test_unknown_files_are_told_apart_by_whether_they_were_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line("m1"))
    (tmp_path / "notes.json").write_text('{"nothing": "known"}')
    (tmp_path / "empty.jsonl").write_text("")
    opened, problems, _ = corpus(tmp_path)
    assert opened.unknown == []
    assert problems.count("unknown_format") == 1
    assert problems.count("empty_file") == 1
    named, _, _ = corpus(tmp_path / "notes.json")
    assert named.unknown == [tmp_path / "notes.json"]


def test_a_file_is_found_once_however_often_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}")
    found = list(find_files([tmp_path, tmp_path / "a.jsonl", tmp_path], Problems()))
    assert [f.path.name for f in found] == ["a.jsonl"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9)))),
    st.integers(1, 5),
)
def test_gathering_on_disk_equals_gathering_in_memory(
    plan: list[tuple[str, int | None]], in_memory: int
) -> None:
    calls = [
        Call(id=str(i), session=session, started_at=at, usage=Usage(output=i))
        for i, (session, at) in enumerate(plan)
    ]
    spilled = list(gather(iter(calls), "x", in_memory=in_memory))
    assert spilled == list(gather(iter(calls), "x", in_memory=10**6))
    assert sorted(c.id for s in spilled for c in s.calls) == sorted(c.id for c in calls)
    for session in spilled:
        times = [c.started_at for c in session.calls]
        if None not in times:
            assert times == sorted(times)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 50))), st.integers(1, 4))
def test_seen_keys_count_each_key_with_its_highest_output(
    offers: list[tuple[int, int]], in_memory: int
) -> None:
    seen = SeenKeys(in_memory)
    counted: dict[int, int] = {}
    for key, output in offers:
        more = seen.new_output(f"key{key}", output)
        assert (more is None) == (key not in counted)
        counted[key] = counted.get(key, 0) + (output if more is None else more)
    naive: dict[int, int] = {}
    for key, output in offers:
        naive[key] = max(output, naive.get(key, 0))
    assert counted == naive


def test_calls_without_a_key_are_never_merged() -> None:
    seen = SeenKeys()
    assert seen.new_output(None, 5) is None
    assert seen.new_output(None, 5) is None


def test_a_neighbour_with_the_same_envelope_is_still_recognised(tmp_path: Path, root: Path) -> None:
    samples = root / "fixtures" / "sessions" / "agents"
    (tmp_path / "a.jsonl").write_text(line("m1"))
    for path in sorted(samples.rglob("*.jsonl")):
        (tmp_path / f"b-{path.parent.name}-{path.name}").write_bytes(path.read_bytes())
    together, _, _ = corpus(tmp_path)
    for item in together.files:
        alone, _, _ = corpus(item.file.path)
        assert [f.source.name for f in alone.files] == [item.source.name]
