from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from local_backend.errors import CacheStateError, SnapshotError
from local_backend.kvcache.coordinator import make_groups
from local_backend.kvcache.keys import Namespace, Span, TokenKey
from local_backend.kvcache.manager import CacheManager
from local_backend.kvcache.snapshot import Restored, restore, save
from local_backend.kvcache.specs import simple_group
from tests.unit.local_backend.kvcache.world import World

ALL = ["radix", "hash", "naive"]


def tokens(seed: int, length: int) -> list[int]:
    return [seed * 1000 + position for position in range(length)]


def filled(**options) -> World:
    world = World(**options)
    for name, prompt in (("a", tokens(1, 30)), ("b", [*tokens(1, 14), *tokens(2, 9)])):
        world.manager.release(world.admit(name, prompt))
    key = TokenKey(Namespace("world"), tokens(3, 12), (Span(5, 3, b"cat"),))
    world.manager.release(world.admit("c", key))
    return world


@pytest.mark.parametrize("cache", ALL)
@pytest.mark.parametrize("other", ALL)
@pytest.mark.parametrize("windows", [(0,), (0, 9)])
def test_a_new_process_starts_warm(
    tmp_path: Path, cache: str, other: str, windows: tuple[int, ...]
) -> None:
    world = filled(cache=cache, windows=windows)
    count = save(world.manager, tmp_path / "s")
    again = World(cache=other, windows=windows)
    assert restore(again.manager, tmp_path / "s") == Restored(count, 0)
    again.manager.check_integrity()
    for name, prompt, hit in (("a", tokens(1, 30), 28), ("b", [*tokens(1, 14), 1], 12)):
        sequence = again.admit(name, prompt)
        assert sequence is not None
        assert again.manager.usage(sequence).hit == hit
        assert again.wrong(sequence) == []
    for image, hit in ((b"cat", 8), (b"dog", 4)):
        key = TokenKey(Namespace("world"), tokens(3, 12), (Span(5, 3, image),))
        assert again.manager.hit_length(key) == hit


def test_what_is_in_use_is_saved_as_far_as_it_is_published(tmp_path: Path) -> None:
    world = World()
    sequence = world.admit("a", tokens(1, 30))
    assert sequence is not None
    assert save(world.manager, tmp_path / "s") == 7
    world.manager.check_integrity()


def test_in_a_smaller_memory_the_most_recent_is_kept(tmp_path: Path) -> None:
    world = World()
    for number in range(3):
        world.manager.release(world.admit(str(number), tokens(number, 16)))
    world.manager.release(world.admit("again", tokens(0, 16)))
    save(world.manager, tmp_path / "s")
    small = World(pages=8)
    assert restore(small.manager, tmp_path / "s") == Restored(8, 4)
    hits = [small.manager.hit_length(TokenKey(Namespace("world"), tokens(n, 17))) for n in range(3)]
    assert hits == [16, 0, 16]
    small.manager.check_integrity()


def test_the_order_of_eviction_is_kept(tmp_path: Path) -> None:
    world = World()
    for number in (2, 0, 1):
        world.manager.release(world.admit(str(number), tokens(number, 9)))
    save(world.manager, tmp_path / "s")
    again = World()
    restore(again.manager, tmp_path / "s")
    again.evict(2)
    hits = [again.manager.hit_length(TokenKey(Namespace("world"), tokens(n, 9))) for n in range(3)]
    assert hits == [8, 8, 0]


@pytest.mark.parametrize("keep", [0, 5, 60, 200, -1, -40])
def test_a_torn_snapshot_is_refused_and_nothing_changes(tmp_path: Path, keep: int) -> None:
    save(filled().manager, tmp_path / "s")
    data = (tmp_path / "s").read_bytes()
    (tmp_path / "s").write_bytes(data[:keep])
    world = World()
    with pytest.raises(SnapshotError, match=r"torn or damaged|no snapshot"):
        restore(world.manager, tmp_path / "s")
    assert world.manager.sizes()["full"].available == 40


@pytest.mark.parametrize("at", [8, 20, 100, -1])
def test_a_damaged_snapshot_is_refused(tmp_path: Path, at: int) -> None:
    save(filled().manager, tmp_path / "s")
    data = bytearray((tmp_path / "s").read_bytes())
    data[at] ^= 16
    (tmp_path / "s").write_bytes(bytes(data))
    with pytest.raises(SnapshotError, match="torn or damaged"):
        restore(World().manager, tmp_path / "s")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "bf16"}, "another memory layout of group full"),
        ({"page_size": 8}, "another memory layout"),
        ({"windows": (0, 9)}, "with 1 groups"),
    ],
)
def test_a_snapshot_of_another_model_is_refused(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    save(filled().manager, tmp_path / "s")
    with pytest.raises(SnapshotError, match=message):
        restore(World(**options).manager, tmp_path / "s")


def test_only_an_empty_manager_takes_a_snapshot(tmp_path: Path) -> None:
    world = filled()
    save(world.manager, tmp_path / "s")
    with pytest.raises(CacheStateError, match="cached or in use"):
        restore(world.manager, tmp_path / "s")


def test_files_that_are_not_there_or_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="cannot be read"):
        restore(World().manager, tmp_path / "none")
    with pytest.raises(SnapshotError, match="cannot be written"):
        save(filled().manager, tmp_path / "no" / "folder")


def test_a_cache_without_bytes_cannot_be_saved(tmp_path: Path) -> None:
    manager = CacheManager(make_groups([simple_group(4, 16)], {"full": 4}))
    with pytest.raises(SnapshotError, match="not known to the cache"):
        save(manager, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_snapshot_is_for_its_owner_alone(tmp_path: Path) -> None:
    save(filled().manager, tmp_path / "s")
    assert (tmp_path / "s").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


KILLED = """
import sys
from pathlib import Path
from tests.unit.local_backend.kvcache.world import World
world = World(Path(sys.argv[1]), pages=400, disk_bytes=1 << 20)
number = 0
while True:
    number += 1
    prompt = [number * 1000 + position for position in range(30)]
    world.manager.release(world.admit(str(number), prompt))
    world.carrier.flush()
    if number % 5 == 0:
        world.save()
    print(number, flush=True)
"""


def test_a_killed_process_loses_nothing_that_was_written(tmp_path: Path, root: Path) -> None:
    """SIGKILL in the middle of writing; the next process reads what is whole and only that."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    last = 0
    for line in process.stdout:
        last = int(line)
        if last >= 23:
            process.send_signal(signal.SIGKILL)
            break
    process.wait(20)
    process.stdout.close()
    world = World(tmp_path, pages=400, disk_bytes=1 << 20)
    for number in range(1, last + 1):
        sequence = world.admit(str(number), tokens(number, 30))
        assert sequence is not None
        assert world.manager.usage(sequence).restored == 28
        assert world.wrong(sequence) == []
    warm = World(tmp_path, pages=400, disk_bytes=1 << 20)
    warm.restore()
    assert warm.manager.hit_length(TokenKey(Namespace("world"), tokens(1, 30))) == 28
    warm.manager.check_integrity()
