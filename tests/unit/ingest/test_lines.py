"""Lines of broken files: what can be read is read, the rest is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.ingest import lines
from cacheaudit.ingest.problems import Problems


def read(path: Path) -> tuple[list[tuple[int, object]], Problems]:
    """Read every line, with what was counted."""
    problems = Problems()
    return list(lines.json_lines(path, problems)), problems


@settings(deadline=None)
@given(st.lists(st.one_of(st.just(b""), st.just(b" "), st.integers(0, 9).map(lambda n: b"%d" % n))))
def test_offsets_and_numbers_equal_those_of_a_plain_split(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("l") / "x.jsonl"
    data = b"\n".join(parts)
    path.write_bytes(data)
    expected, offset = [], 0
    for number, part in enumerate(data.split(b"\n"), 1):
        offset = min(offset + len(part) + 1, len(data))
        if part.strip():
            expected.append((number, offset, part))
    assert list(lines.raw_lines(path, Problems())) == expected


@settings(deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 8), st.integers(12, 40)), max_size=12),
    chunk=st.integers(1, 4),
    ends=st.booleans(),
)
def test_lines_across_reads_are_whole_and_overlong_ones_leave_no_trace(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], chunk: int, ends: bool
) -> None:
    path = tmp_path_factory.mktemp("l") / "x.jsonl"
    data = b"\n".join(b"x" * size for size in sizes) + (b"\n" if ends else b"")
    path.write_bytes(data)
    expected, offset = [], 0
    for number, size in enumerate(sizes, 1):
        offset = min(offset + size + 1, len(data))
        if 0 < size <= 8:
            expected.append((number, offset, b"x" * size))
    problems = Problems()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK", chunk)
        patch.setattr(lines, "MAX_LINE", 8)
        assert list(lines.raw_lines(path, problems)) == expected
    assert problems.count("too_long_line") == sum(size > 8 for size in sizes)


@settings(deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 8), st.integers(17, 60)), max_size=12),
    window=st.integers(1, 4),
    ends=st.booleans(),
)
def test_runs_of_lines_join_to_the_file_without_its_overlong_lines(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], window: int, ends: bool
) -> None:
    path = tmp_path_factory.mktemp("l") / "x.jsonl"
    written = [b"%x" % (number % 16) * size for number, size in enumerate(sizes)]
    path.write_bytes(b"\n".join(written) + (b"\n" if ends else b""))
    problems = Problems()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "WINDOW", window)
        patch.setattr(lines, "MAX_LINE", 8)
        runs = [bytes(data[low:stop]) for data, low, stop in lines.line_chunks(path, problems)]
    assert all(run.endswith(b"\n") for run in runs[:-1])
    kept = b"\n".join(b"" if len(line) > 8 else line for line in written)
    assert b"".join(runs).rstrip(b"\n") == kept.rstrip(b"\n")
    dropped = [number for number, size in enumerate(sizes, 1) if size > 8]
    assert problems.count("too_long_line") == len(dropped)
    places = [place.partition(": ")[0] for _, _, found in problems.items() for place in found]
    assert places == [f"{path}:{number}" for number in dropped][: len(places)]
    assert bool(places) == bool(dropped)


def test_reading_can_go_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"1\n22\n333\n")
    first = next(iter(lines.raw_lines(path, Problems())))
    rest = list(lines.raw_lines(path, Problems(), start=first[1], first_line=2))
    assert [(n, line) for n, _, line in rest] == [(2, b"22"), (3, b"333")]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'{"a": 1', "truncated_line"),
        (b'{"a": }', "invalid_json"),
        (b'{"a": "\xff"}', "encoding"),
        (b"[" * 200_000 + b"]" * 200_000, "too_deep"),
    ],
)
def test_a_bad_line_is_counted_with_its_place(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"1\n" + content + b"\n3\n")
    values, problems = read(path)
    assert [v for v in values if v[1] in (1, 3)] == [(1, 1), (3, 3)]
    assert problems.count(kind) == 1
    assert problems.items()[0][2][0].startswith(f"{path}:2")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marked_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes('{"a": "é"}\n{"a": 2}\n'.encode(encoding))
    values, _ = read(path)
    assert [v for _, v in values] == [{"a": "é"}, {"a": 2}]


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_an_overlong_line_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 2 << 20)
    long = json.dumps("x" * (5 << 20))
    parts = {"first": [long, "1", "2"], "middle": ["1", long, "2"], "last": ["1", "2", long]}
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(parts[where]))
    values, problems = read(path)
    assert [v for _, v in values] == [1, 2]
    assert problems.count("too_long_line") == 1


def test_a_missing_file_is_counted(tmp_path: Path) -> None:
    values, problems = read(tmp_path / "none.jsonl")
    assert values == []
    assert problems.count("vanished_file") == 1
