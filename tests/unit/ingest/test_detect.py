"""Every format is recognised by its content, and no source takes another one's files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cacheaudit.ingest.detect import all_sources, detect, head_of, recognise
from cacheaudit.ingest.problems import Problems
from tests.unit.ingest.wire_samples import FIXTURES, SESSIONS, WIRE

WANTED = {
    WIRE / "answers.sse": "http_capture",
    WIRE / "browser.har": "har",
    WIRE / "capture-records.json": "http_capture",
    WIRE / "capture.jsonl": "http_capture",
    WIRE / "cassette-python.yaml": "vcr",
    WIRE / "cassette-ruby.yml": "vcr",
    WIRE / "cassette.json": "vcr",
    WIRE / "client-events.jsonl": "otel",
    WIRE / "langfuse-trace.json": "langfuse",
    WIRE / "langfuse.jsonl": "langfuse",
    WIRE / "litellm.csv": "litellm",
    WIRE / "litellm.jsonl": "litellm",
    WIRE / "otlp.jsonl": "otel",
    WIRE / "spans-console.json": "otel",
    SESSIONS / "demo.session.jsonl": "native",
    SESSIONS / "exercise-14.csv": "usage_log",
    SESSIONS / "exercise-14.session.jsonl": "native",
    SESSIONS / "fan-out.session.jsonl": "native",
    SESSIONS / "probe.session.jsonl": "native",
    SESSIONS / "plain.jsonl": "usage_log",
    SESSIONS / "plain.tsv": "usage_log",
}
# Files that belong to a source without being sessions by themselves.
_NO_SESSION = {"settings.json", "taskHistory.json", "package.json"}


def agents_files() -> list[tuple[Path, str]]:
    """Return the samples of the agents' sources: their folder is their source."""
    root = SESSIONS / "agents"
    return [
        (path, path.relative_to(root).parts[0])
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in _NO_SESSION
    ]


@pytest.mark.parametrize(("path", "name"), list(WANTED.items()), ids=[path.name for path in WANTED])
def test_each_sample_is_claimed_by_its_own_source(path: Path, name: str) -> None:
    head = head_of(path)
    source = detect(head)
    assert source is not None
    assert source.name == name
    scores = {s.name: s.detect(head) for s in all_sources()}
    assert [s for s, score in scores.items() if score == max(scores.values())] == [name]


def test_every_sample_is_in_the_table() -> None:
    written = {path for path in WIRE.iterdir() if path.is_file() and path.suffix != ".md"}
    written |= {path for path in SESSIONS.iterdir() if path.is_file() and ".known" not in path.name}
    assert written == set(WANTED)


def test_no_source_takes_an_agents_file() -> None:
    mine = {"har", "http_capture", "langfuse", "litellm", "native", "otel", "usage_log", "vcr"}
    files = agents_files()
    assert files
    for path, folder in files:
        source = detect(head_of(path))
        if source is not None and source.name in mine:
            # Copilot CLI writes OpenTelemetry beside its own session files.
            assert (source.name, folder) == ("otel", "copilot_cli"), path


@pytest.mark.parametrize("path", list(WANTED), ids=[path.name for path in WANTED])
def test_the_name_does_not_matter(path: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "x"
    shutil.copyfile(path, renamed)
    source = detect(head_of(renamed))
    assert source is not None
    assert source.name == WANTED[path]


def _texts() -> list[Path]:
    files = [*WANTED, *(path for path, _ in agents_files() if path.suffix != ".db")]
    return [path for path in files if recognise(path) is not None]


def test_files_marked_as_utf_16_are_recognised_and_read_alike(tmp_path: Path) -> None:
    for path in _texts():
        same = tmp_path / path.parent.name / path.name  # some sources name sessions by the folder
        same.parent.mkdir(exist_ok=True)
        same.write_text(path.read_text(encoding="utf-8"), encoding="utf-16")
        source = recognise(path)
        assert source is not None
        assert recognise(same) is source, path
        problems, expected = Problems(), list(source.read(path, Problems()))
        found = list(source.read(same, problems))
        assert [(c.id, c.usage, c.at) for c in found] == [
            (c.id, c.usage, c.at) for c in expected
        ], path
        assert problems.count("encoding") == 1 or not expected, path


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"{}",
        b"[]",
        b"[[1]]",
        b"null",
        b'{"a": 1}\n{"a": 2}\n',
        b"hello\nworld\n",
        b"a,b\n1,2\n",
        b"\0\1\2" * 1000,
        b"\xff\xfe\0",
        b"{" * 5000,
        b"- a\n- b\n",
        b'{"version": "1", "log": []}',
        b'{"model": "x"}',
        b"# A heading\n\nmodel, messages, usage\n",
    ],
)
def test_other_files_are_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    assert detect(head_of(path)) is None


@pytest.mark.parametrize("path", list(WANTED), ids=[path.name for path in WANTED])
def test_every_source_survives_every_sample_cut_anywhere(path: Path, tmp_path: Path) -> None:
    """A file that is cut, or read by the wrong source, raises nothing and gives sound calls."""
    data = path.read_bytes()
    wanted = WANTED[path]
    for part in (data[: len(data) // 3], data[: len(data) - 7], data[len(data) // 2 :]):
        cut = tmp_path / path.name
        cut.write_bytes(part)
        for source in all_sources():
            if source.name in set(WANTED.values()):
                source.detect(head_of(cut))
                for call in source.read(cut, Problems()):
                    assert call.id
                    assert call.origin is not None
                    assert call.usage is None or call.usage.dialect
    assert wanted in {source.name for source in all_sources()}


def test_what_each_source_declares_holds_for_its_samples() -> None:
    """No sample shows a field that its source says it cannot know."""
    by_name = {source.name: source for source in all_sources()}
    for path, name in WANTED.items():
        source = by_name[name]
        able = source.capabilities
        for call in source.read(path, Problems()):
            assert able.bodies or call.prompt is None
            assert able.provider_reasons or call.diagnostics is None
            if call.usage is not None:
                assert able.reads or call.usage.cache_read is None
                assert able.writes or call.usage.cache_write is None
                labelled = (call.usage.write_5m, call.usage.write_1h)
                assert able.ttl_split or labelled == (None, None)
            if able.start_times in ("interval", "none"):
                assert name in ("vcr", "http_capture") or call.started_at is None


def test_the_scripts_write_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    for script in ("make_wire", "make_exports"):
        spec = importlib.util.spec_from_file_location(script, FIXTURES / "make" / f"{script}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(module, "OUT", tmp_path / "wire")
        module.main()
    for path in sorted((tmp_path / "wire").iterdir()):
        assert path.read_bytes() == (WIRE / path.name).read_bytes(), path.name
    committed = {p.name for p in WIRE.iterdir() if p.suffix != ".md"}
    assert {p.name for p in (tmp_path / "wire").iterdir()} == committed


_USAGE = {"input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 7}
_LINE = json.dumps(
    {
        "type": "assistant",
        "sessionId": "s",
        "uuid": "u",
        "timestamp": "2026-11-01T00:00:00.000Z",
        "message": {"id": "msg_1", "model": "claude-opus-5-5", "content": [], "usage": _USAGE},
    }
)
_SNAPSHOT = json.dumps({"type": "file-history-snapshot", "snapshot": {"a": "y" * 3_000}})


@pytest.mark.parametrize(
    "front",
    [
        [_SNAPSHOT] * 60,  # more than the head holds
        ['{"type":"file-history-snapshot"}'] * 60,  # more lines than are decoded
        ["no JSON"] * 60,
        [json.dumps({"type": "file-history-snapshot", "a": "y" * 300_000})] * 3,
    ],
)
def test_lines_that_tell_nothing_hide_nothing(tmp_path: Path, front: list[str]) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join([*front, _LINE, ""]))
    found = recognise(path)
    assert found is not None
    assert found.name == "claude_code"


def test_a_file_of_nothing_known_stays_unknown(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    for text in (_SNAPSHOT + "\n") * 2_000, "no JSON\n" * 100_000, "x" * 300_000, "\n" * 200:
        path.write_text(text)
        assert recognise(path) is None
    path.write_text("".join(f'{{"level":"info","at":{n}}}\n' for n in range(2_000)))
    assert recognise(path) is None
