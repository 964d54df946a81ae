"""Import: idempotent, incremental, and the same whatever the order."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

import pytest

from cacheaudit.errors import UnknownFormatError, UsageError
from cacheaudit.jobs.import_ import ImportReport, import_files
from cacheaudit.model.clock import FixedClock
from cacheaudit.store import Store, open_store
from tests.unit.store.builders import ContinuingToy, ToySource, inputs, line

CLOCK = FixedClock(1_000.0)


def run(
    url: str, *paths: Path, source: ToySource | None = None, text: bool = False
) -> ImportReport:
    with open_store(url, store_text=text) as store:
        return import_files(
            inputs(*paths), store, CLOCK, sources=[source if source is not None else ToySource()]
        )


def calls(url: str) -> dict[str, int | None]:
    """Output tokens by call id."""
    with open_store(url) as store:
        return {
            call.id: call.usage.output if call.usage else None
            for session in store.sessions()
            for call in session.calls
        }


def figures(report: ImportReport) -> tuple[int, ...]:
    return (report.calls_new, report.calls_updated, report.calls_unchanged)


def touch_later(path: Path) -> None:
    """Give the file another time, as any change does."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "a.jsonl"
    path.parent.mkdir()
    path.write_text("".join(line(f"c{i}", out=i) for i in range(5)))
    return path


def test_the_second_import_changes_nothing(url: str, file: Path) -> None:
    first = run(url, file.parent)
    before = calls(url)
    second = run(url, file.parent)
    touch_later(file)
    third = run(url, file.parent)
    assert figures(first) == (5, 0, 0)
    assert (first.files_seen, first.files_read, first.files_skipped) == (1, 1, 0)
    assert (second.files_read, second.files_skipped, *figures(second)) == (0, 1, 0, 0, 0)
    assert (third.files_read, third.files_skipped, *figures(third)) == (1, 0, 0, 0, 5)
    assert calls(url) == before == {f"c{i}": i for i in range(5)}


def test_the_copy_with_most_output_wins_in_every_order(url: str, tmp_path: Path) -> None:
    copies = {"a": 7, "b": 30, "c": 30, "d": 2}
    for name, out in copies.items():
        (tmp_path / f"{name}.jsonl").write_text(line("m", key="m", out=out))
    results = []
    for order in itertools.permutations(copies):
        with open_store(url) as store:
            for name in order:
                import_files(
                    inputs(tmp_path / f"{name}.jsonl"), store, CLOCK, sources=[ToySource()]
                )
            (session,) = store.sessions()
            results.append(session)
            _empty(store)
    assert all(session == results[0] for session in results)
    (call,) = results[0].calls
    assert results[0].id == "b"  # of equals, the first place
    assert call.usage is not None
    assert call.usage.output == 30
    assert [part.output for part in call.usage.parts] == [30]


def _empty(store: Store) -> None:
    from cacheaudit.store.tables import metadata

    with store._engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())


def test_copies_within_one_file_are_one_call(url: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line("m", out=1) + line("m", out=9) + line("m", out=4))
    assert figures(run(url, path)) == (1, 0, 2)
    assert calls(url) == {"m": 9}


def test_calls_without_a_key_are_never_joined(url: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line("m", key=None) * 3)
    assert figures(run(url, path)) == (3, 0, 0)
    touch_later(path)
    assert figures(run(url, path)) == (0, 0, 3)
    with open_store(url) as store:
        assert store.counts() == (1, 3)


def test_an_appended_file_is_continued_behind_its_last_whole_line(url: str, file: Path) -> None:
    source = ContinuingToy()
    run(url, file, source=source)
    whole = file.stat().st_size
    half = line("later", out=50)
    with file.open("a") as stream:
        stream.write(line("c5", out=5) + half[:10])
    report = run(url, file, source=source)
    assert (report.files_continued, report.files_read) == (1, 0)
    assert source.started == [(whole, 6)]
    assert figures(report) == (1, 0, 0)
    assert {kind: n for kind, n, _ in report.problems} == {"truncated_line": 1}
    with file.open("a") as stream:
        stream.write(half[10:])
    report = run(url, file, source=source)
    assert source.started[1:] == [(whole + len(line("c5", out=5)), 7)]
    assert figures(report) == (1, 0, 0)
    assert calls(url) == {**{f"c{i}": i for i in range(6)}, "later": 50}
    with open_store(url) as store:
        (session,) = store.sessions()
        assert [call.origin.line for call in session.calls if call.origin] == [1, 2, 3, 4, 5, 6, 7]


def test_an_appended_file_is_read_again_where_the_source_cannot_continue(
    url: str, file: Path
) -> None:
    run(url, file)
    with file.open("a") as stream:
        stream.write(line("c5", out=5))
    report = run(url, file)
    assert (report.files_continued, report.files_read) == (0, 1)
    assert figures(report) == (1, 0, 5)


@pytest.mark.parametrize("source", [ToySource(), ContinuingToy()], ids=["plain", "continuing"])
@pytest.mark.parametrize("key", [None, "k"])
def test_a_rewritten_file_is_read_again(
    url: str, file: Path, source: ToySource, key: str | None
) -> None:
    """Calls known by their place alone are what the file says now; keyed ones are a history."""

    def text(names: str, out: int) -> str:
        return "".join(line(n, out=out, key=key and f"{key}{n}") for n in names)

    file.write_text(text("abcd", 5))
    run(url, file, source=source)
    file.write_text(text("axd", 3))
    report = run(url, file, source=source)
    assert (report.files_read, report.files_continued) == (1, 0)
    if key is None:
        assert calls(url) == {"a": 3, "x": 3, "d": 3}
    else:
        assert calls(url) == {"a": 5, "b": 5, "c": 5, "d": 5, "x": 3}


def test_a_newer_reader_replaces_what_the_older_one_made(url: str, file: Path) -> None:
    class Better(ToySource):
        def call(self, value, path, number):
            return super().call({**value, "out": 0}, path, number)

    run(url, file)
    report = run(url, file, source=Better(version=2))
    assert figures(report) == (0, 5, 0)
    assert set(calls(url).values()) == {0}
    # An older version that comes back reads the file, but does not undo that.
    run(url, file, source=ToySource(version=1))
    assert set(calls(url).values()) == {0}


def test_a_text_import_reads_unchanged_files_once_more(url: str, file: Path) -> None:
    run(url, file)
    assert run(url, file, text=True).files_read == 1
    assert run(url, file, text=True).files_skipped == 1
    assert run(url, file).files_skipped == 1


def test_same_size_and_time_but_other_content_is_noticed(url: str, file: Path) -> None:
    run(url, file)
    status = file.stat()
    file.write_text(file.read_text().replace('"out": 1', '"out": 8'))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert run(url, file).calls_updated == 1
    assert calls(url)["c1"] == 8


def test_a_changed_write_ahead_log_counts_as_a_change(url: str, file: Path) -> None:
    run(url, file)
    file.with_name(file.name + "-wal").write_bytes(b"new pages")
    assert run(url, file).files_read == 1
    assert run(url, file).files_skipped == 1


def test_a_relative_path_names_the_same_file(
    url: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(line("m", key=None))
    run(url, file)
    monkeypatch.chdir(file.parent)
    assert run(url, Path("a.jsonl")).files_skipped == 1
    touch_later(file)
    assert figures(run(url, Path("../in/a.jsonl"))) == (0, 0, 1)


def test_random_growth_ends_where_one_import_ends(url: str, tmp_path: Path) -> None:
    """Whatever is appended in whatever pieces, importing between them changes no total."""
    rng = random.Random(7)
    path = tmp_path / "a.jsonl"
    text = "".join(
        line(
            f"c{rng.randrange(40)}",
            out=rng.randrange(100),
            key=rng.choice([None, f"k{rng.randrange(30)}"]),
        )
        for _ in range(200)
    )
    position = 0
    while position < len(text):
        step = rng.randrange(1, 3000)
        with path.open("a") as stream:
            stream.write(text[position : position + step])
        position += step
        run(url, path, source=ContinuingToy())
    fresh = f"sqlite:///{tmp_path / 'fresh.db'}"
    run(fresh, path)
    assert _all(url) == _all(fresh)


def _all(url: str) -> list[tuple[object, ...]]:
    with open_store(url) as store:
        return sorted(
            (call.id, call.dedupe_key or "", call.usage.output, call.origin.line)
            for session in store.sessions()
            for call in session.calls
            if call.usage and call.origin
        )


def test_broken_files_are_counted_and_the_rest_is_imported(url: str, tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text(line("c0"))
    (tmp_path / "bad.jsonl").write_text(line("c1") + "{broken}\n" + line("c2"))
    (tmp_path / "other.jsonl").write_text("no session\n")
    (tmp_path / "empty.jsonl").write_text("")
    report = run(url, tmp_path)
    assert {kind: n for kind, n, _ in report.problems} == {
        "invalid_json": 1,
        "unknown_format": 1,
        "empty_file": 1,
    }
    assert (report.files_seen, report.files_read, report.calls_new) == (4, 2, 3)
    with open_store(url) as store:
        cursor = store.cursor(str(tmp_path / "bad.jsonl"))
    assert cursor is not None
    assert [(kind, n) for kind, n, _ in cursor.problems] == [("invalid_json", 1)]
    assert cursor.imported_at == 1_000.0


def test_a_named_file_of_no_known_format_is_an_error(url: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line("c0"))
    (tmp_path / "b.txt").write_text("hello")
    with pytest.raises(UnknownFormatError, match=r"b\.txt"):
        run(url, tmp_path / "a.jsonl", tmp_path / "b.txt")
    assert calls(url) == {"c0": 1}
    with pytest.raises(UsageError, match="There is no"):
        run(url, tmp_path / "missing")


def test_calls_of_several_files_are_put_in_order_of_time(url: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line("late", s="s", at=30.0) + line("last", s="s", at=40.0))
    (tmp_path / "b.jsonl").write_text(line("first", s="s", at=10.0))
    run(url, tmp_path)
    with open_store(url) as store:
        (session,) = store.sessions()
    assert [call.id for call in session.calls] == ["first", "late", "last"]
