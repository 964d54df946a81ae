"""The store keeps what it was given, within its limits, whoever else uses it."""

from __future__ import annotations

import contextlib
import hashlib
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.agent.outputs.store import OutputStore
from cacheaudit.errors import OutputError
from cacheaudit.model.clock import FixedClock

ROOT = Path(__file__).resolve().parents[4]
SHARED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@SHARED_FOLDER
@given(st.text(st.characters(codec="utf-8")))
def test_text_comes_back(tmp_path: Path, text: str) -> None:
    stored = OutputStore(tmp_path).put(text)
    assert OutputStore(tmp_path).text(stored.handle) == text
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    assert stored.handle == f"out_{digest}", "the same on every machine"
    assert stored.size == len(text.encode())


@SHARED_FOLDER
@given(st.binary())
def test_any_bytes_are_kept_as_text(tmp_path: Path, data: bytes) -> None:
    store = OutputStore(tmp_path)
    assert store.text(store.put(data).handle) == data.decode("utf-8", "replace")


def test_lone_surrogates_become_the_replacement_character(tmp_path: Path) -> None:
    store = OutputStore(tmp_path)
    assert store.text(store.put("a\ud800b").handle).replace("\ufffd", "") == "ab"


def test_the_same_output_is_kept_once(tmp_path: Path) -> None:
    store = OutputStore(tmp_path)
    assert store.put("same").handle == store.put(b"same").handle
    assert len(store.entries()) == 1


@pytest.mark.parametrize(
    "handle",
    ["", "..", "../../etc/passwd", "out_" + "0" * 31, "out_" + "G" * 32, "/etc/passwd", ".lock",
     "out_" + "0" * 32 + "\n", "out_" + "0" * 32 + "/../x"],
)  # fmt: skip
def test_only_handles_become_paths(tmp_path: Path, handle: str) -> None:
    store = OutputStore(tmp_path)
    with pytest.raises(OutputError, match="no handle"):
        store.text(handle)
    with pytest.raises(OutputError, match="no handle"):
        store.remove(handle)


def test_a_link_in_place_of_an_output_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    store = OutputStore(tmp_path / "store")
    handle = f"out_{hashlib.blake2b(b'secret', digest_size=16).hexdigest()}"
    (tmp_path / "store" / handle).symlink_to(secret)
    with pytest.raises(OutputError, match="No output is kept"):
        store.text(handle)
    assert secret.exists()


def test_others_cannot_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    stored = OutputStore(folder).put("x")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / stored.handle).stat().st_mode) == 0o600


def test_the_longest_unused_makes_room(tmp_path: Path) -> None:
    clock = FixedClock(1_000.0)
    store = OutputStore(tmp_path, quota=250, clock=clock)
    first, second = store.put("a" * 100).handle, (clock.advance(1), store.put("b" * 100).handle)[1]
    clock.advance(1)
    assert store.text(first) == "a" * 100
    clock.advance(1)
    third = store.put("c" * 100).handle
    assert {entry.handle for entry in store.entries()} == {first, third}
    with pytest.raises(OutputError, match="Run the tool again"):
        store.text(second)


def test_what_exceeds_the_quota_alone_is_refused(tmp_path: Path) -> None:
    store = OutputStore(tmp_path, quota=10)
    kept = store.put("0123456789")
    with pytest.raises(OutputError, match="larger than the store's quota of 10"):
        store.put("0123456789a")
    assert [entry.handle for entry in store.entries()] == [kept.handle]


@SHARED_FOLDER
@given(sizes=st.lists(st.integers(1, 100), min_size=1, max_size=12), quota=st.integers(100, 300))
def test_the_quota_holds_and_the_newest_stays(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, sizes: list[int], quota: int
) -> None:
    clock = FixedClock(1.0)
    store = OutputStore(tmp_path_factory.mktemp("quota"), quota=quota, clock=clock)
    used: list[tuple[str, int]] = []
    for size in sizes:
        clock.advance(1)
        stored = store.put("x" * size)
        used = [item for item in used if item[0] != stored.handle] + [(stored.handle, size)]
        while sum(size for _, size in used) > quota:
            used.pop(0)
        assert [(entry.handle, entry.size) for entry in store.entries()] == used


def test_outputs_expire_after_their_last_use(tmp_path: Path) -> None:
    clock = FixedClock(0.0)
    store = OutputStore(tmp_path, expiry=100.0, clock=clock)
    used, idle = store.put("used").handle, store.put("idle").handle
    clock.advance(80)
    store.text(used)
    clock.advance(80)
    assert store.text(used) == "used"
    with pytest.raises(OutputError, match="expired"):
        store.text(idle)
    clock.advance(101)
    assert store.sweep() == 1
    assert store.entries() == []


def test_a_damaged_file_is_not_given_out(tmp_path: Path) -> None:
    handle = OutputStore(tmp_path).put("what was said").handle
    (tmp_path / handle).write_text("")
    store = OutputStore(tmp_path)
    with pytest.raises(OutputError, match="No output is kept"):
        store.text(handle)
    store.put("what was said")
    assert store.text(handle) == "what was said"


def test_leftovers_of_the_dead_are_removed(tmp_path: Path) -> None:
    clock = FixedClock(10_000.0)
    store = OutputStore(tmp_path, clock=clock)
    left = tmp_path / ".out_00.abc"
    left.write_text("half")
    clock.advance(1e10)
    store.sweep()
    assert not left.exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="make the folder"):
        OutputStore(tmp_path / "file" / "store")


def test_what_another_process_removes_while_it_is_kept_again_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = OutputStore(tmp_path), OutputStore(tmp_path)
    handle = store.put("kept twice").handle
    lock = store._lock

    @contextlib.contextmanager
    def late() -> Iterator[None]:
        with lock():
            other.remove(handle)
            yield

    monkeypatch.setattr(store, "_lock", late)
    assert store.put("kept twice").handle == handle
    assert store.text(handle) == "kept twice"


WRITER = """
import sys
from collections.abc import Iterator
from cacheaudit.agent.outputs.store import OutputStore
store = OutputStore(sys.argv[1], quota=100_000)
for number in range(150):
    stored = store.put(f"{number % 60:04}" * 500)
    try:
        assert store.text(stored.handle) == f"{number % 60:04}" * 500
    except Exception as error:
        if "No output is kept" not in str(error):
            raise
print("done")
"""


def test_two_processes_share_it(tmp_path: Path) -> None:
    """Both write the same outputs at once, twice as many as fit."""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert (out, err) == ("done\n", "")
    store = OutputStore(tmp_path)
    entries = store.entries()
    assert 90_000 < sum(entry.size for entry in entries) <= 100_000
    for entry in entries:
        assert len({store.text(entry.handle)[i : i + 4] for i in range(0, 2000, 4)}) == 1
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out_")]
