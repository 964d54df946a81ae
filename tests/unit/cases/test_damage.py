"""Whatever is broken in a file: counted, listed, and the run goes on."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.inputs import silent
from cacheaudit.model.call import Call
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from tests.unit.cases.bills import bill, lines, messages_usage, transcript_line
from tests.unit.cases.damage import damaged
from tests.unit.cli.helpers import process, run

ROOT = Path(__file__).resolve().parents[3] / "fixtures"
SAMPLES = sorted(
    path
    for folder in ("sessions", "wire")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and path.suffix not in (".md", ".py") and path.stat().st_size < 300_000
)
HEAD = "started_at,model,total_input,cache_read,output\n"
ROW = "2026-10-05T10:00:00Z,claude-opus-4-8,7,0,1\n"


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def _checked(home: Path, *arguments: str) -> dict[str, Any] | None:
    result = run(home, *arguments)
    assert result.exit_code in (0, 2), result.output
    assert "fault of cacheaudit" not in result.output, result.output
    if result.exit_code:
        assert result.stderr
        return None
    found: dict[str, Any] = json.loads(result.stdout, parse_constant=_no_constant)
    assert "source_failed" not in {row["kind"] for row in found["data_quality"]}, found
    return found


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_damage_ends_a_run(tmp_path: Path, sample: Path) -> None:
    data = sample.read_bytes()
    for seed in range(4):
        file = tmp_path / str(seed) / sample.name
        file.parent.mkdir()
        file.write_bytes(damaged(seed * 1_000 + len(data), data))
        _checked(tmp_path, "usage", str(file), "--json", "--by", "session")
        found = _checked(tmp_path, "audit", str(file.parent), "--json")
        for name in ("uncached_input", "cache_read", "output", "total_input"):
            count = found["totals"][name] if found else None
            assert count is None or (type(count) is int and count >= 0), name


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_ends_an_import_or_an_export(tmp_path: Path, seed: int) -> None:
    sample = SAMPLES[seed * 7 % len(SAMPLES)]
    file = tmp_path / sample.name
    file.write_bytes(damaged(seed, sample.read_bytes()))
    url = f"sqlite:///{tmp_path / 'x.db'}"
    for command in (["import", str(file), "--db", url], ["export", str(file), "--with-text"]):
        result = run(tmp_path, *command)
        assert result.exit_code in (0, 2), result.output
        assert "fault of cacheaudit" not in result.output, result.output


def _native(**fields: Any) -> dict[str, Any]:
    usage = messages_usage(5, 0, 0, 1)
    call = {"schema": "cacheaudit.call/1", "id": "x", "session": "s", "model": "claude-opus-4-8"}
    return {**call, "started_at": "2026-10-05T10:00:00Z", "response": {"usage": usage}, **fields}


@pytest.mark.parametrize(
    "fields",
    [
        {"started_at": 1e300},
        {"started_at": "1e999"},
        {"started_at": "nan"},
        {"started_at": 10**300},
        {"started_at": 5, "ended_at": 10**9 * 30},
        {"tool_seconds": 1e300},
        {"reported_cost": 1e300},
        {"reported_cost": "1e999999999"},
        {"reported_cost": "1e-999999999"},
        {"provider": "a" * 5_000},
        {"provider": "../../../etc/passwd"},
        {"provider": ["anthropic"]},
        {"requests": 2**80},
        {"attempt": -5},
        {"start_span": {"low": -1e300, "high": 1e300}, "started_at": None},
    ],
)
def test_values_beyond_any_sense_are_not_known(tmp_path: Path, fields: dict[str, Any]) -> None:
    file = lines(tmp_path / "x.session.jsonl", [_native(**fields), _native(id="y")])
    found = bill(tmp_path, file)
    assert found.fresh == 10
    url = f"sqlite:///{tmp_path / 'x.db'}"
    assert run(tmp_path, "import", str(file), "--db", url).exit_code == 0
    assert bill(tmp_path, options=("--db", url)).fresh == 10
    exported = tmp_path / "again.session.jsonl"
    assert run(tmp_path, "export", str(file), "-o", str(exported)).exit_code == 0
    assert exported.stat().st_size < 20_000
    assert bill(tmp_path, exported).fresh == 10


@pytest.mark.parametrize(("number", "calls"), [("9" * 400, 3), ("1e400", 2), ("-1", 3)])
def test_a_number_beyond_any_range_is_not_known(tmp_path: Path, number: str, calls: int) -> None:
    rows = [transcript_line(f"m{i}", messages_usage(1, 2, 3, 4)) for i in range(3)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    bad = text.replace('"input_tokens": 1', f'"input_tokens": {number}', 1)
    (tmp_path / "s1.jsonl").write_text(bad)
    found = bill(tmp_path, tmp_path / "s1.jsonl")
    assert (found.calls, found.fresh, found.read) == (calls, 2, 2 * calls)
    assert sum(found.problems.get(kind, 0) for kind in ("wrong_type", "negative_part")) == 1


def test_half_a_character_costs_nothing(tmp_path: Path) -> None:
    half = "cut \\ud83d in two \\\\ud83d \\ud83d\\ude00"
    native = json.dumps(_native(task="T")).replace('"T"', f'"{half}"')
    assert json.loads(native)["task"] == "cut \ud83d in two \\ud83d 😀"
    (tmp_path / "x.session.jsonl").write_text(native + "\n")
    row = transcript_line("m1", messages_usage(5, 0, 0, 1))
    row["message"]["content"][0]["text"] = "T"
    transcript = json.dumps(row, separators=(",", ":")).replace('"T"', f'"{half}"')
    # The usage before the content: the line is decoded whole.
    message = {"usage": row["message"].pop("usage"), **row["message"]}
    whole = json.dumps({**row, "message": message}).replace('"T"', f'"{half}"')
    (tmp_path / "s1.jsonl").write_text(transcript + "\n")
    (tmp_path / "s2.jsonl").write_text(whole + "\n")
    for name, kinds in (("x.session.jsonl", 1), ("s1.jsonl", 0), ("s2.jsonl", 1)):
        found = bill(tmp_path, tmp_path / name)
        assert (found.fresh, found.out) == (5, 1), name
        assert found.problems.get("encoding", 0) == kinds, name
    body = json.dumps({"model": "claude-opus-4-8", "messages": [{"role": "user", "content": "T"}]})
    body = body.replace('"T"', f'"{half}"')
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(body)
    result = run(tmp_path, "diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["equal"] is True


def test_names_that_are_no_text_are_spelled_out_and_kept_apart(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in (b"caf\xe8.csv", b"caf\xe9.csv"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text(HEAD + ROW)
    found = _checked(tmp_path, "usage", str(folder), "--json", "--by", "session")
    assert found is not None
    assert [group["key"] for group in found["groups"]] == ["caf\\udce8", "caf\\udce9"]
    for form in ("json", "text", "html", "md", "csv", "sarif"):
        result = run(tmp_path, "audit", str(folder), "--format", form, "-v")
        assert result.exit_code == 0, result.output
    url = f"sqlite:///{tmp_path / 'x.db'}"
    for skipped in (0, 2):
        report = run(tmp_path, "import", str(folder), "--db", url, "--json")
        assert json.loads(report.stdout)["files_skipped"] == skipped
    assert bill(tmp_path, options=("--db", url)).fresh == 14
    result = run(tmp_path, "export", str(folder), "-o", str(tmp_path / "x.session.jsonl"))
    assert result.exit_code == 0
    assert bill(tmp_path, tmp_path / "x.session.jsonl").fresh == 14


def test_pipes_sockets_devices_and_folders_are_told_apart_from_files(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    (folder / "folder.jsonl").mkdir(parents=True)
    (folder / "good.csv").write_text(HEAD + ROW)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "zero.jsonl").symlink_to("/dev/zero")
    (folder / "loop.jsonl").symlink_to("loop.jsonl")
    (folder / "up").symlink_to("..")
    (folder / "gone.jsonl").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket.jsonl"))
        for command in ("usage", "audit"):
            done = process(tmp_path, command, str(folder), "--json", timeout=60)
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
            assert found["totals"]["total_input"] == 7
            kinds = {row["kind"]: row["count"] for row in found["data_quality"]}
            assert kinds["not_a_file"] == 3
            assert kinds["vanished_file"] == 1
            assert kinds["symlink_loop"] >= 1
    for name in ("pipe.jsonl", "zero.jsonl"):
        done = process(tmp_path, "usage", str(folder / name), timeout=60)
        assert done.returncode == 2
        assert b"pipe, socket or device" in done.stderr
        for other in (f"{folder / name}", f"{folder / name}#2"):
            if name == "zero.jsonl":
                done = process(tmp_path, "diff", other, other, timeout=60)
                assert done.returncode == 2
                assert b"device" in done.stderr


def test_a_path_that_cannot_be_is_bad_use(tmp_path: Path) -> None:
    for path, said in (("a" * 300, "File name too long"), (str(tmp_path / "no"), "There is no")):
        for command in ("usage", "audit", "import", "export", "diff"):
            arguments = [command, path, path] if command == "diff" else [command, path]
            result = run(tmp_path, *arguments)
            assert result.exit_code == 2, command
            assert said in result.stderr or "There is no" in result.stderr
            assert "fault" not in result.stderr


class _Failing:
    name = "failing"
    title = "Fails"
    capabilities = Capabilities()

    def detect(self, head: Head) -> int:
        if b"detection" in head.data:
            raise RuntimeError("secret text of the file")
        return 100

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        yield Call(id="one", session=path.stem)
        raise KeyError("secret text of the file")

    def usual_places(self, environment: Any, home: Path) -> Iterator[Path]:
        yield from ()


def test_a_fault_of_a_source_ends_its_file_and_not_the_run(tmp_path: Path) -> None:
    for name in ("a", "b", "detection"):
        (tmp_path / f"{name}.jsonl").write_text(name)
    problems = Problems()
    corpus = Corpus([tmp_path], problems, silent, [_Failing()])
    assert [session.id for session in corpus.sessions()] == ["a", "b"]
    found = {kind: examples for kind, _, examples in problems.items()}
    assert problems.count("source_failed") == 3
    assert "RuntimeError at test_damage.py" in found["source_failed"][0]
    assert "secret" not in str(found)


def test_money_is_exact_after_damage_next_to_it(tmp_path: Path) -> None:
    good = _native(reported_cost="0.1")
    file = lines(tmp_path / "x.session.jsonl", [good, _native(id="z", reported_cost=[1])])
    found = _checked(tmp_path, "usage", str(file), "--json")
    assert found is not None
    assert Decimal(found["totals"]["cost"]["reported"]) == Decimal("0.1")


def test_an_overlong_first_line_hides_nothing(tmp_path: Path) -> None:
    row = json.dumps(transcript_line("m1", messages_usage(5, 6, 7, 8)))
    for start in ("x" * 100_000, '{"type": "user", "text": "' + "x" * 3_000_000 + '"}'):
        (tmp_path / "s1.jsonl").write_text(f"{start}\n{row}\n")
        assert bill(tmp_path, tmp_path / "s1.jsonl").parts == (5, 6, 7, 8)
