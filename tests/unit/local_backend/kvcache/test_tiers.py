from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_backend.errors import RecordError, TierError
from local_backend.kvcache.specs import simple_group
from local_backend.kvcache.tiers.disk import DiskTier
from local_backend.kvcache.tiers.host import HostTier
from local_backend.kvcache.tiers.peer import PeerTier
from local_backend.kvcache.tiers.record import decode, encode, tier_key
from local_backend.kvcache.tiers.serve import PageServer
from local_backend.kvcache.tiers.stack import TierStack
from local_backend.kvcache.tiers.wire import MAX_BODY, Word, receive, send

LAYOUT, OTHER = b"L" * 16, b"M" * 16
KEYS = [tier_key("full", bytes([number]) * 16) for number in range(20)]
SPEC = simple_group(4, 16)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    with PageServer(tmp_path / "s", 10_000) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture(params=["host", "disk", "peer"])
def tier(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[HostTier | DiskTier | PeerTier]:
    made: HostTier | DiskTier | PeerTier
    if request.param == "host":
        made = HostTier(10_000)
    elif request.param == "disk":
        made = DiskTier(tmp_path / "d", 10_000)
    else:
        request.getfixturevalue("server")
        made = PeerTier(tmp_path / "s")
    yield made
    made.close()


# One page.


@given(st.binary(max_size=100), st.integers(0, 200), st.integers(1, 255))
def test_a_damaged_record_is_never_taken_for_a_page(payload: bytes, at: int, flip: int) -> None:
    record = encode(KEYS[0], LAYOUT, payload)
    assert decode(record, KEYS[0], LAYOUT) == payload
    at %= len(record)
    damaged = record[:at] + bytes([record[at] ^ flip]) + record[at + 1 :]
    with pytest.raises(RecordError):
        decode(damaged, KEYS[0], LAYOUT)
    with pytest.raises(RecordError):
        decode(record[:at], KEYS[0], LAYOUT)


def test_a_record_of_another_page_or_layout_is_refused() -> None:
    record = encode(KEYS[0], LAYOUT, b"kv")
    for key, layout, reason in ((KEYS[1], LAYOUT, "key"), (KEYS[0], OTHER, "layout")):
        with pytest.raises(RecordError) as caught:
            decode(record, key, layout)
        assert caught.value.reason == reason


def test_groups_keep_their_pages_apart() -> None:
    assert tier_key("full", b"k" * 16) != tier_key("window-8", b"k" * 16)


# What every tier does.


def test_what_was_stored_comes_back_bit_by_bit(tier: HostTier) -> None:
    """B06."""
    payloads = {key: bytes([number, 255 - number]) * 20 for number, key in enumerate(KEYS[:5])}
    for key, payload in payloads.items():
        assert tier.store(key, LAYOUT, payload)
    assert tier.held(KEYS) == set(payloads)
    assert {key: tier.load(key, LAYOUT) for key in payloads} == payloads
    assert tier.load(KEYS[9], LAYOUT) is None
    assert (tier.counters.stored, tier.counters.loaded) == (5, 5)
    assert (tier.counters.stored_bytes, tier.counters.loaded_bytes) == (200, 200)
    assert (tier.counters.refused, tier.counters.failures) == ({}, 0)


def test_another_layout_is_refused_and_counted(tier: HostTier) -> None:
    """E19."""
    tier.store(KEYS[0], OTHER, b"old")
    assert tier.load(KEYS[0], LAYOUT) is None
    assert tier.counters.refused == {"layout": 1}
    assert tier.load(KEYS[0], OTHER) == b"old"


def test_a_full_tier_drops_what_was_used_longest_ago(tier: HostTier) -> None:
    for key in KEYS[:9]:
        tier.store(key, LAYOUT, bytes(1000))
    tier.load(KEYS[0], LAYOUT)
    tier.store(KEYS[9], LAYOUT, bytes(1000))
    tier.store(KEYS[10], LAYOUT, bytes(1000))
    held = tier.held(KEYS)
    assert KEYS[0] in held
    assert KEYS[10] in held
    assert KEYS[1] not in held


def test_a_page_larger_than_the_tier_is_turned_away(tier: HostTier) -> None:
    tier.store(KEYS[1], LAYOUT, bytes(10))
    assert not tier.store(KEYS[0], LAYOUT, bytes(20_000))
    assert tier.held(KEYS) == {KEYS[1]}


def test_storing_again_replaces(tier: HostTier) -> None:
    for payload in (b"one", b"two"):
        tier.store(KEYS[0], LAYOUT, payload)
    assert tier.load(KEYS[0], LAYOUT) == b"two"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 400)), max_size=40))
def test_a_bounded_tier_never_holds_more(steps: list[tuple[int, int]]) -> None:
    host = HostTier(1000)
    for number, size in steps:
        host.store(KEYS[number], LAYOUT, bytes(size))
        assert host.used_bytes <= 1000
        assert host.used_bytes == sum(
            len(encode(key, LAYOUT, host.load(key, LAYOUT) or b"")) for key in host.held(KEYS)
        )


# Disk.


def test_pages_on_disk_survive_the_process(tmp_path: Path) -> None:
    for key in KEYS[:3]:
        DiskTier(tmp_path, 10_000).store(key, LAYOUT, key)
    again = DiskTier(tmp_path, 10_000)
    assert again.held(KEYS) == set(KEYS[:3])
    assert [again.load(key, LAYOUT) for key in KEYS[:3]] == KEYS[:3]
    assert len(again) == 3


def test_what_a_crash_left_half_done_is_removed(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 10_000)
    disk.store(KEYS[0], LAYOUT, b"kv")
    unfinished = disk.path_of(KEYS[1]).with_suffix(".1-1.part")
    unfinished.parent.mkdir(exist_ok=True)
    unfinished.write_bytes(b"half")
    (tmp_path / "00").mkdir(exist_ok=True)
    (tmp_path / "00" / "note.txt").write_text("not ours")
    (tmp_path / "00" / "zz.kv").write_text("not ours")
    again = DiskTier(tmp_path, 10_000)
    assert again.held(KEYS) == {KEYS[0]}
    assert not unfinished.exists()
    assert (tmp_path / "00" / "note.txt").exists()


@pytest.mark.parametrize("keep", [0, 10, 70, -1])
def test_a_torn_file_is_a_miss_and_goes(tmp_path: Path, keep: int) -> None:
    disk = DiskTier(tmp_path, 10_000)
    disk.store(KEYS[0], LAYOUT, bytes(100))
    path = disk.path_of(KEYS[0])
    path.write_bytes(path.read_bytes()[:keep])
    assert disk.load(KEYS[0], LAYOUT) is None
    assert disk.counters.refused == {"torn": 1}
    assert not path.exists()
    assert disk.held(KEYS) == set()
    assert disk.used_bytes == 0


def test_a_file_that_vanished_is_a_miss(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 10_000)
    disk.store(KEYS[0], LAYOUT, b"kv")
    disk.path_of(KEYS[0]).unlink()
    assert disk.load(KEYS[0], LAYOUT) is None
    assert disk.used_bytes == 0


def test_a_smaller_limit_applies_to_what_is_there(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 10_000)
    for key in KEYS[:8]:
        disk.store(key, LAYOUT, bytes(1000))
    small = DiskTier(tmp_path, 3_500)
    assert len(small) == 3
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*.kv")) == small.used_bytes


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path / "tier", 10_000)
    disk.store(KEYS[0], LAYOUT, b"kv")
    assert (tmp_path / "tier").stat().st_mode & 0o077 == 0
    assert disk.path_of(KEYS[0]).parent.stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TierError, match="cannot be used"):
        DiskTier(tmp_path / "file", 10)


def test_a_disk_that_refuses_is_no_error(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 10_000)
    disk.path_of(KEYS[0]).parent.write_text("in the way")
    assert not disk.store(KEYS[0], LAYOUT, b"kv")
    assert disk.load(KEYS[0], LAYOUT) is None
    assert disk.counters.failures == 2
    assert disk.held(KEYS) == set()


# Another process.


def start(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "local_backend.kvcache.tiers.serve", str(path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"keeping pages at {path}\n"
    return process


def test_pages_outlive_the_engine_in_another_process(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    path = tmp_path / "s"
    process = start(path)
    try:
        assert path.stat().st_mode & 0o077 == 0
        first = PeerTier(path)
        assert first.store(KEYS[0], LAYOUT, bytes(range(256)))
        first.close()
        second = PeerTier(path)
        assert second.load(KEYS[0], LAYOUT) == bytes(range(256))
        assert second.count() == 1
        second.close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stdout is not None
        process.stdout.close()
    assert not path.exists()


def test_a_peer_that_dies_is_a_miss_and_one_that_returns_is_used(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    path = tmp_path / "s"
    peer = PeerTier(path)
    assert not peer.store(KEYS[0], LAYOUT, b"kv")
    for _ in range(2):
        process = start(path)
        assert peer.store(KEYS[0], LAYOUT, b"kv")
        assert peer.load(KEYS[0], LAYOUT) == b"kv"
        process.kill()
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()
        assert peer.held(KEYS) == set()
        assert peer.load(KEYS[0], LAYOUT) is None
        assert peer.count() is None
    assert peer.counters.failures >= 5
    peer.close()


def test_a_peer_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        peer = PeerTier(tmp_path / "s", timeout_s=0.05)
        assert peer.load(KEYS[0], LAYOUT) is None
        assert peer.counters.failures == 1
        peer.close()


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"KVT1",
        b"KVT1\x01\x05\x00\x00\x00ab",
        b"KVT1\x63\x00\x00\x00\x00",
    ],
)
def test_noise_ends_its_connection_and_no_other(
    server: PageServer, tmp_path: Path, noise: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "s"))
        connection.sendall(noise)
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):  # where not all of the noise was read
            assert connection.recv(10) == b""
    peer = PeerTier(tmp_path / "s")
    assert peer.store(KEYS[0], LAYOUT, b"kv")
    peer.close()


def test_questions_without_sense_are_answered_so(server: PageServer) -> None:
    for word, body in ((Word.HELD, b"short"), (Word.LOAD, b""), (Word.STORE, b""), (Word.YES, b"")):
        assert server.answer(word, body) == (Word.BAD, b"")


def test_a_frame_beyond_the_limit_is_refused() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"KVT1\x01" + (MAX_BODY + 1).to_bytes(4, "little"))
        with pytest.raises(TierError, match="does not speak"):
            receive(other)
        send(one, Word.COUNT, b"")
        assert receive(other) == (Word.COUNT, b"")


# Several tiers.


def test_each_page_comes_from_the_fastest_that_has_it(tmp_path: Path) -> None:
    host, disk = HostTier(10_000), DiskTier(tmp_path, 10_000)
    stack = TierStack([host, disk])
    keys = [bytes([number]) * 16 for number in range(4)]
    host.store(tier_key("full", keys[0]), SPEC.layout, b"h" * 16)
    for key in keys[:3]:
        disk.store(tier_key("full", key), SPEC.layout, b"d" * 16)
    assert stack.held(SPEC, keys) == set(keys[:3])
    assert stack.load(SPEC, keys[0]) == (b"h" * 16, "host")
    assert stack.load(SPEC, keys[1]) == (b"d" * 16, "disk")
    assert stack.load(SPEC, keys[1]) == (b"d" * 16, "host")
    assert stack.load(SPEC, keys[3]) is None


def test_a_page_damaged_in_one_tier_comes_from_another(tmp_path: Path) -> None:
    first, second = (
        DiskTier(tmp_path / "1", 9999, "first"),
        DiskTier(tmp_path / "2", 9999, "second"),
    )
    stack = TierStack([first, second])
    key = b"k" * 16
    assert stack.store(SPEC, key, b"p" * 16) == 2
    first.path_of(tier_key("full", key)).write_bytes(b"damaged")
    assert stack.load(SPEC, key) == (b"p" * 16, "second")


def test_pages_of_another_size_are_refused() -> None:
    host = HostTier(9999)
    host.store(tier_key("full", b"k" * 16), SPEC.layout, b"short")
    stack = TierStack([host])
    assert stack.load(SPEC, b"k" * 16) is None
    assert host.counters.refused == {"size": 1}


def test_a_useless_page_is_replaced_when_a_good_one_comes() -> None:
    host = HostTier(9999)
    stack = TierStack([host])
    host.store(tier_key("full", b"k" * 16), OTHER, b"o" * 16)
    assert stack.load(SPEC, b"k" * 16) is None
    assert stack.store(SPEC, b"k" * 16, b"n" * 16) == 1
    assert stack.load(SPEC, b"k" * 16) == (b"n" * 16, "host")
    assert stack.store(SPEC, b"k" * 16, b"x" * 16) == 1
    assert stack.load(SPEC, b"k" * 16) == (b"n" * 16, "host")
