"""Pages go out, the process ends, pages come back: the same KV to the byte, or computed again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from local_backend.errors import CacheStateError
from local_backend.kvcache.coordinator import make_groups
from local_backend.kvcache.events import EventKind
from local_backend.kvcache.keys import Namespace, TokenKey
from local_backend.kvcache.manager import CacheManager
from local_backend.kvcache.offload import Offload, WriteMode
from local_backend.kvcache.specs import simple_group
from local_backend.kvcache.store import BytesStore
from local_backend.kvcache.tiers.host import HostTier
from local_backend.kvcache.tiers.stack import TierStack
from local_backend.kvcache.writeback import Job, StepCarrier, ThreadCarrier
from tests.unit.local_backend.kvcache.world import World, kv_of

SPEC = simple_group(4, 16)


def tokens(seed: int, length: int) -> list[int]:
    return [seed * 1000 + position for position in range(length)]


def flush(world: World) -> None:
    assert world.carrier is not None
    world.carrier.flush()


@pytest.mark.parametrize("cache", ["radix", "hash", "naive"])
@pytest.mark.parametrize("mode", list(WriteMode))
def test_restored_kv_is_the_computed_kv(tmp_path: Path, cache: str, mode: WriteMode) -> None:
    """B06: host memory and disk, written through or back."""
    world = World(tmp_path, cache=cache, mode=mode, pages=12)
    prompt = tokens(1, 30)
    first = world.admit("first", prompt)
    assert first is not None
    computed = world.read(first)
    world.manager.release(first)
    flush(world)
    world.evict(12)
    flush(world)
    again = world.admit("again", prompt, compute=False)
    assert again is not None
    usage = world.manager.usage(again)
    assert (usage.resident, usage.restored, usage.computed) == (0, 28, 2)
    assert usage.restored_pages == (("host", 7),)
    assert world.read(again) == computed[: 28 * 4]
    world.compute(again)
    assert world.read(again) == computed
    assert world.manager.events.counts[EventKind.RESTORE].tokens == 28


@pytest.mark.parametrize("page_size", [4, 16])
@pytest.mark.parametrize("pages", [1, 2, 3])
@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("windows", [(0,), (0, 9)])
def test_restoring_at_and_beside_page_boundaries(
    tmp_path: Path, page_size: int, pages: int, more: int, windows: tuple[int, ...]
) -> None:
    """E32: prompts of n pages, one token less and one more, after a restart."""
    world = World(tmp_path, page_size=page_size, windows=windows)
    prompt = tokens(1, pages * page_size + more)
    cold = world.admit("cold", prompt)
    assert cold is not None
    kv = world.read(cold)
    world.manager.release(cold)
    flush(world)
    world.crash()
    warm = world.admit("warm", prompt)
    assert warm is not None
    assert world.manager.usage(warm).restored == (len(prompt) - 1) // page_size * page_size
    assert world.read(warm) == kv
    assert world.wrong(warm) == []
    longer = world.admit("longer", [*prompt, 5, 6])
    assert longer is not None
    assert world.manager.usage(longer).hit == len(prompt) // page_size * page_size
    assert world.wrong(longer) == []


def test_another_memory_layout_refuses_and_computes(tmp_path: Path) -> None:
    """E19: pages stored by a model whose bytes mean something else."""
    world = World(tmp_path, layout="fp32")
    prompt = tokens(1, 30)
    world.manager.release(world.admit("first", prompt))
    flush(world)
    other = World(tmp_path, layout="bf16")
    sequence = other.admit("again", prompt)
    assert sequence is not None
    assert other.manager.usage(sequence).restored == 0
    assert other.wrong(sequence) == []
    assert other.disk.counters.refused == {"layout": 1}
    # The pages of the new layout replace what was of no use, and are found after a restart.
    flush(other)
    other.crash()
    again = other.admit("once more", prompt)
    assert again is not None
    assert other.manager.usage(again).restored >= 4
    assert other.wrong(again) == []


def test_a_damaged_page_ends_the_restored_part(tmp_path: Path) -> None:
    world = World(tmp_path)
    prompt = tokens(1, 30)
    world.manager.release(world.admit("first", prompt))
    flush(world)
    world.crash()
    path = min((tmp_path / "tier").glob("*/*.kv"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    again = world.admit("again", prompt)
    assert again is not None
    chain = TokenKey(Namespace("world"), prompt).chain(4, 7)
    damaged = next(i for i, key in enumerate(chain) if key.hex() == path.stem[8:])
    assert world.manager.usage(again).restored == damaged * 4
    assert world.wrong(again) == []
    assert world.disk.counters.refused == {"damaged": 1}


def test_the_longest_match_over_memory_and_all_tiers_wins(tmp_path: Path) -> None:
    world = World(tmp_path, pages=20)
    prompt = tokens(1, 41)
    world.manager.release(world.admit("first", prompt))
    flush(world)
    world.evict(6)
    space = Namespace("world")
    chain = TokenKey(space, prompt).chain(4, 10)
    world.host.close()
    for key in chain[4:6]:
        payload, tier = world.offload.tiers.load(world.specs[0], key) or (b"", "")
        assert (len(payload), tier) == (16, "disk")
    again = world.admit("again", prompt)
    assert again is not None
    usage = world.manager.usage(again)
    assert (usage.resident, usage.restored) == (16, 24)
    assert usage.restored_pages == (("disk", 4), ("host", 2))
    assert world.wrong(again) == []


def test_what_is_in_memory_is_not_restored(tmp_path: Path) -> None:
    world = World(tmp_path)
    prompt = tokens(1, 30)
    world.manager.release(world.admit("first", prompt))
    flush(world)
    again = world.admit("again", prompt)
    assert again is not None
    assert (again.resident, again.restored, again.restore_s) == (28, 0, 0.0)


def test_restoring_takes_time_that_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    ticks = iter(range(100))
    manager = CacheManager(world.groups, offload=world.offload, clock=lambda: next(ticks) * 0.5)
    world.manager = manager
    prompt = tokens(1, 30)
    manager.release(world.admit("first", prompt))
    flush(world)
    world.evict(10)
    again = world.admit("again", prompt)
    assert again is not None
    assert manager.usage(again).restore_s == 0.5


@pytest.mark.parametrize("cache", ["radix", "hash"])
def test_a_split_while_pages_are_under_way(tmp_path: Path, cache: str) -> None:
    """E22: the node is split and evicted for before its pages have been written."""
    world = World(tmp_path, pages=10, cache=cache)
    prompt = tokens(1, 32)
    world.manager.release(world.admit("first", prompt))
    assert world.carrier is not None
    world.carrier.step()
    other = world.admit("other", [*prompt[:12], 9, 9, 9])
    assert other is not None
    world.manager.release(other)
    world.evict(10)
    assert world.admit("big", tokens(2, 36)) is None
    flush(world)
    big = world.admit("big", tokens(2, 36))
    assert big is not None
    world.manager.release(big)
    flush(world)
    key = TokenKey(Namespace("world"), prompt)
    kv = kv_of(key)
    for index, identity in enumerate(key.chain(4, 8)):
        payload, _ = world.offload.tiers.load(world.specs[0], identity) or (b"", "")
        assert payload == kv[index * 16 : index * 16 + 16]
    world.manager.check_integrity()


def test_pages_under_way_stay_even_when_their_request_ends(tmp_path: Path) -> None:
    world = World(tmp_path, pages=8)
    world.manager.release(world.admit("first", tokens(1, 32)))
    sizes = world.manager.sizes()["full"]
    assert (sizes.evictable, sizes.protected) == (0, 8)
    with pytest.raises(CacheStateError, match="in use"):
        world.manager.reset()
    flush(world)
    assert world.manager.sizes()["full"].evictable == 8
    assert world.manager.events.counts[EventKind.OFFLOAD].pages == 8


def test_writing_back_is_no_use(tmp_path: Path) -> None:
    """A page that was written late must not look recently used."""
    world = World(tmp_path, pages=40)
    old, new = tokens(1, 16), tokens(2, 16)
    world.manager.release(world.admit("old", old))
    world.manager.release(world.admit("new", new))
    flush(world)
    world.evict(4)
    world.host.close()
    match = world.groups[0].cache.match(TokenKey(Namespace("world"), old), 16)
    assert match.length == 0
    assert world.groups[0].cache.match(TokenKey(Namespace("world"), new), 16).length == 16


def test_room_is_counted_without_what_the_request_reuses(tmp_path: Path) -> None:
    """Four pages are in memory, two in a tier, two are new; only three can be had."""
    world = World(tmp_path, pages=10)
    prompt = tokens(1, 30)
    world.manager.release(world.admit("first", prompt))
    flush(world)
    world.evict(3)
    assert world.admit("other", tokens(2, 12)) is not None
    flush(world)
    before = world.manager.sizes()
    assert (before["full"].available, before["full"].evictable) == (3, 4)
    assert world.admit("again", [*prompt[:24], *tokens(3, 8)]) is None
    assert world.manager.sizes() == before
    again = world.admit("again", [*prompt[:24], 5])
    assert again is not None
    assert (again.resident, again.restored) == (16, 8)


def test_too_many_pages_under_way_are_given_up_not_waited_for() -> None:
    stack = TierStack([HostTier(9999)])
    carrier = StepCarrier(stack, max_pages=3)
    store = BytesStore(20, 16)
    groups = make_groups([SPEC], {"full": 20}, stores={"full": store})
    manager = CacheManager(groups, offload=Offload(stack, carrier=carrier))
    for number in range(3):
        sequence = manager.admit(str(number), TokenKey(b"r" * 16, tokens(number, 9)))
        assert sequence is not None
        manager.commit(sequence, 9)
        manager.release(sequence)
    assert manager.events.counts[EventKind.DROP].pages == 4
    assert manager.sizes()["full"].protected == 2
    carrier.flush()
    assert manager.sizes()["full"].protected == 0
    manager.check_integrity()


def test_a_tier_that_takes_nothing_is_counted() -> None:
    stack = TierStack([HostTier(10)])
    carrier = StepCarrier(stack)
    store = BytesStore(20, 16)
    groups = make_groups([SPEC], {"full": 20}, stores={"full": store})
    manager = CacheManager(groups, offload=Offload(stack, carrier=carrier))
    sequence = manager.admit("one", TokenKey(b"r" * 16, tokens(1, 9)))
    assert sequence is not None
    manager.commit(sequence, 9)
    carrier.flush()
    assert manager.events.counts[EventKind.DROP].pages == 2
    assert manager.events.counts[EventKind.OFFLOAD].pages == 0


def test_pages_known_to_a_tier_are_not_written_again(tmp_path: Path) -> None:
    world = World(tmp_path, mode=WriteMode.BACK)
    prompt = tokens(1, 30)
    for name in ("first", "again"):
        world.manager.release(world.admit(name, prompt))
        world.evict(40)
        flush(world)
    assert world.host.counters.stored == 7


# The carriers.


def job(keys: list[bytes], done: list[str], name: str, read=None) -> Job:
    return Job(SPEC, keys, read or (lambda index: bytes([index]) * 16), lambda _: done.append(name))


def test_a_thread_carries_in_order_and_reports_in_the_callers_thread() -> None:
    stack = TierStack([HostTier(9999)])
    carrier = ThreadCarrier(stack)
    threads: list[int] = []
    done: list[str] = []

    def read(index: int) -> bytes:
        threads.append(threading.get_ident())
        return bytes([index]) * 16

    keys = [bytes([number]) * 16 for number in range(6)]
    assert carrier.submit(job(keys[:4], done, "one", read))
    assert carrier.submit(job(keys[4:], done, "two", read))
    carrier.flush()
    assert done == ["one", "two"]
    assert carrier.waiting_pages == 0
    assert set(threads) == {threads[0]} != {threading.get_ident()}
    assert stack.held(SPEC, keys) == set(keys)
    carrier.close()
    assert not carrier.submit(job(keys, done, "late"))


def test_a_thread_turns_away_what_is_too_much() -> None:
    gate = threading.Event()
    stack = TierStack([HostTier(9999)])
    carrier = ThreadCarrier(stack, max_pages=3)

    def slow(index: int) -> bytes:
        gate.wait(20)
        return bytes(16)

    done: list[str] = []
    assert carrier.submit(job([b"a" * 16] * 2, done, "one", slow))
    assert not carrier.submit(job([b"b" * 16] * 2, done, "two"))
    gate.set()
    carrier.flush()
    assert carrier.submit(job([b"b" * 16] * 2, done, "three"))
    carrier.close()
    assert done == ["one", "three"]


def test_a_store_that_fails_does_not_stop_the_carrier() -> None:
    stack = TierStack([HostTier(9999)])
    carrier = ThreadCarrier(stack)
    kept: list[int] = []

    def read(index: int) -> bytes:
        if index == 0:
            raise OSError("device is gone")
        return bytes(16)

    carrier.submit(Job(SPEC, [b"a" * 16, b"b" * 16], read, lambda ended: kept.append(ended.kept)))
    carrier.close()
    assert kept == [1]


def test_threads_and_manager_together(tmp_path: Path) -> None:
    """A real thread under a run of requests; everything is accounted for at the end."""
    stack = TierStack([HostTier(100_000)])
    offload = Offload(stack)
    store = BytesStore(30, 16)
    groups = make_groups([SPEC], {"full": 30}, stores={"full": store}, tails=False)
    manager = CacheManager(groups, offload=offload)
    restored = 0
    for number in range(300):
        key = TokenKey(b"r" * 16, tokens(number % 7, 20 + number % 5))
        sequence = manager.admit(str(number), key)
        if sequence is None:
            offload.carrier.flush()
            continue
        restored += sequence.restored
        kv = kv_of(key)
        for index in range(sequence.computed // 4):
            assert store.read_page(sequence.pages()[index]) == kv[index * 16 : index * 16 + 16]
        for index in range(sequence.computed // 4, len(key) // 4):
            store.write_page(sequence.pages()[index], kv[index * 16 : index * 16 + 16])
        manager.commit(sequence, len(key))
        manager.release(sequence)
        manager.poll()
    assert restored > 100
    manager.close()
    manager.check_integrity()
    assert manager.sizes()["full"].protected == 0
