"""Several writers at once, and writers that are killed: the totals are those of a quiet import."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cacheaudit.jobs.import_ import import_files
from cacheaudit.model.clock import FixedClock
from cacheaudit.store import open_store
from tests.unit.store.builders import ToySource, inputs, line

CHILD = Path(__file__).with_name("child.py")
Row = tuple[str, str, int, int | None, int]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that share calls with one another, with keys and without."""
    rng = random.Random(11)
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(12):
        rows = [
            line(
                f"c{rng.randrange(200)}",
                s=f"s{number % 5}",
                out=rng.randrange(1000),
                key=rng.choice([None, f"k{rng.randrange(150)}"]),
            )
            for _ in range(rng.randrange(1, 60))
        ]
        (folder / f"{number}.jsonl").write_text("".join(rows))
    return folder


@pytest.fixture(autouse=True)
def _children() -> Iterator[None]:
    """Leave no process behind when a test fails."""
    yield
    for process in started:
        if process.poll() is None:
            process.kill()
        if process.stdout and not process.stdout.closed:
            process.communicate()
    started.clear()


started: list[subprocess.Popen[str]] = []


def start(url: str, folder: Path, batch: int, last: int = 0) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(CHILD), url, str(folder), str(batch), str(last)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started.append(process)
    return process


def finish(process: subprocess.Popen[str]) -> int:
    out, err = process.communicate(timeout=120)
    assert process.returncode in (0, -signal.SIGKILL), err
    return 0 if process.returncode else int(out)


def content(url: str) -> list[Row]:
    """Everything that a total could depend on, parts included."""
    with open_store(url) as store:
        return sorted(
            (
                session.id,
                f"{call.id} {call.dedupe_key} {call.origin}",
                call.usage.output or 0,
                call.usage.total_input,
                sum(part.output or 0 for part in call.usage.parts),
            )
            for session in store.sessions()
            for call in session.calls
            if call.usage
        )


@pytest.fixture
def expected(tmp_path: Path, folder: Path) -> list[Row]:
    quiet = f"sqlite:///{tmp_path / 'quiet.db'}"
    with open_store(quiet) as store:
        import_files(inputs(folder), store, FixedClock(), sources=[ToySource()])
    return content(quiet)


def test_two_writers_of_overlapping_files(url: str, folder: Path, expected: list[Row]) -> None:
    """Both also find no database yet, so they make its schema at the same time."""
    writers = [start(url, folder, batch) for batch in (7, 10)]
    new = [finish(writer) for writer in writers]
    assert content(url) == expected
    assert sum(new) == len(expected)
    assert finish(start(url, folder, 50)) == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_writer_killed_anywhere_can_be_run_again(
    url: str, folder: Path, expected: list[Row], seed: int
) -> None:
    rng = random.Random(seed)
    kills = 0
    for _ in range(4):
        process = start(url, folder, rng.choice([5, 20]), rng.randrange(1, 400))
        finish(process)
        kills += process.returncode == -signal.SIGKILL
    assert kills > 0
    finish(start(url, folder, 20))
    assert content(url) == expected


def test_a_writer_killed_beside_another(url: str, folder: Path, expected: list[Row]) -> None:
    rng = random.Random(5)
    for _ in range(3):
        pair = [start(url, folder, 5, rng.randrange(50, 300)), start(url, folder, 9)]
        for process in pair:
            finish(process)
    assert content(url) == expected
