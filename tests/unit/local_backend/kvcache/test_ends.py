"""Pages that never became full: kept when their request ends, found to the token, first to go."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from local_backend.kvcache.events import EventKind
from local_backend.kvcache.keys import Namespace, Span, TokenKey
from local_backend.kvcache.pages import SizeInfo
from tests.unit.local_backend.kvcache.world import World

CACHES = ("radix", "naive")


def ended(world: World, name: str, prompt: list[int] | TokenKey) -> int:
    """Admit, compute and release; how much was found."""
    sequence = world.admit(name, prompt)
    assert sequence is not None
    assert world.wrong(sequence) == []
    hit = world.manager.usage(sequence).hit
    world.manager.release(sequence)
    world.manager.check_integrity()
    return hit


def world_of(cache: str, **more) -> World:
    return World(**{"page_size": 16, "pages": 40, "cache": cache, "tails": True, **more})


@pytest.mark.parametrize("cache", CACHES)
def test_an_exact_repeat_computes_one_token(cache: str) -> None:
    world, prompt = world_of(cache), list(range(101))
    assert ended(world, "first", prompt) == 0
    assert world.manager.sizes()["full"] == SizeInfo(40, 33, 7, 0)
    assert ended(world, "again", prompt) == 100
    assert ended(world, "longer", [*prompt, 7, 8, 9]) == 101
    assert ended(world, "shorter", prompt[:99]) == 98
    assert ended(world, "other", [*prompt[:98], 5, 5, 5]) == 98


@pytest.mark.parametrize("cache", CACHES)
def test_a_prompt_shorter_than_a_page(cache: str) -> None:
    world = world_of(cache)
    assert ended(world, "first", [1, 2, 3]) == 0
    assert ended(world, "again", [1, 2, 3]) == 2
    assert ended(world, "longer", [1, 2, 3, 4]) == 3
    world.evict(40)
    assert world.manager.sizes()["full"] == SizeInfo(40, 40, 0, 0)
    world.manager.check_integrity()


@pytest.mark.parametrize("cache", CACHES)
def test_what_covers_it_takes_its_place(cache: str) -> None:
    world, prompt = world_of(cache), list(range(20))
    for length, pages in ((20, 2), (20, 2), (18, 2), (25, 2), (32, 2), (20, 2), (33, 3)):
        ended(world, "r", (prompt + list(range(20, 40)))[:length])
        assert world.manager.sizes()["full"].evictable == pages


@pytest.mark.parametrize("cache", CACHES)
def test_it_goes_before_any_whole_page(cache: str) -> None:
    """E07: a tight memory, ends used last; whole prefixes still hit."""
    world = world_of(cache, page_size=4, pages=9)
    one, two = [1] * 18, [2] * 14
    ended(world, "one", one)
    ended(world, "two", two)
    assert world.manager.sizes()["full"] == SizeInfo(9, 0, 9, 0)
    ended(world, "three", [3, 3, 3, 3, 3])
    assert world.manager.events.counts[EventKind.EVICT].pages == 2
    for prompt, hit in ((one, 16), (two, 12)):
        key = TokenKey(Namespace("world"), prompt)
        assert world.manager.hit_length(key) == hit


@pytest.mark.parametrize("cache", CACHES)
def test_the_least_recently_used_goes_first(cache: str) -> None:
    world = world_of(cache, page_size=4, pages=9)
    for token in (1, 2, 3):
        ended(world, "r", [token] * 6)
    assert ended(world, "r", [1] * 6) == 5
    world.evict(1)
    found = [world.manager.hit_length(TokenKey(Namespace("world"), [t] * 6)) for t in (1, 2, 3)]
    assert found == [5, 4, 5]


@pytest.mark.parametrize("cache", CACHES)
def test_the_last_of_a_fork_leaves_it(cache: str) -> None:
    world = world_of(cache)
    sequence = world.admit("one", list(range(20)))
    assert sequence is not None
    other = world.manager.fork(sequence, "two")
    world.manager.release(sequence)
    assert world.manager.sizes()["full"] == SizeInfo(40, 38, 0, 2)
    world.manager.release(other)
    assert world.manager.sizes()["full"] == SizeInfo(40, 38, 2, 0)
    assert ended(world, "three", list(range(20))) == 19


@pytest.mark.parametrize("cache", CACHES)
def test_a_page_that_was_never_copied_is_not_kept(cache: str) -> None:
    world = world_of(cache)
    ended(world, "first", list(range(24)))
    sequence = world.admit("cancelled", [*range(22), 9, 9, 9], compute=False)
    assert sequence is not None
    assert sequence.computed == 22
    world.manager.release(sequence)  # its copy is due, so nothing is in its page
    world.manager.check_integrity()
    assert world.manager.sizes()["full"] == SizeInfo(40, 38, 2, 0)
    assert ended(world, "again", [*range(22), 9, 9, 9]) == 22


@pytest.mark.parametrize("cache", CACHES)
def test_tokens_that_may_be_taken_back_are_not_kept(cache: str) -> None:
    world = world_of(cache)
    sequence = world.admit("one", list(range(20)))
    assert sequence is not None
    world.manager.append(sequence, [50, 51])
    world.compute(sequence, commit=False)
    world.manager.release(sequence)
    assert ended(world, "two", [*range(20), 50, 51, 52]) == 20


def test_only_with_tails_and_one_group(tmp_path: Path) -> None:
    for world in (
        world_of("radix", tails=False),
        world_of("hash"),
        world_of("radix", windows=(0, 9)),
    ):
        ended(world, "first", list(range(20)))
        key = TokenKey(Namespace("world"), list(range(20)))
        assert world.manager.hit_length(key) == 16


def test_snapshots_and_tiers_hold_whole_pages_only(tmp_path: Path) -> None:
    world = world_of("radix", folder=tmp_path)
    ended(world, "first", list(range(40)))
    assert world.carrier is not None
    world.carrier.flush()
    world.manager.poll()
    assert world.save() == 2
    assert len(list((tmp_path / "tier").rglob("*.kv"))) == 2
    world.crash()
    world.restore()
    assert ended(world, "again", list(range(40))) == 32


@pytest.mark.parametrize("seed", range(4))
def test_media_in_the_last_page_agree_with_the_naive_list(seed: int) -> None:
    """Random prompts with placeholders anywhere, ended anywhere, in both indexes."""
    draw = random.Random(seed)
    both = [world_of(cache, page_size=6, pages=30) for cache in CACHES]
    found = 0
    for number in range(400):
        tokens = [draw.randrange(2) for _ in range(draw.randrange(1, 30))]
        spans, at = [], draw.randrange(20)
        while at < len(tokens) and len(spans) < 3:
            length = min(draw.randrange(1, 6), len(tokens) - at)
            spans.append(Span(at, length, bytes([draw.randrange(2)]) * 16))
            at += length + draw.randrange(8)
        most = draw.randrange(1, 31)
        results = []
        for world in both:
            key = TokenKey(Namespace("world"), tokens, tuple(spans))
            sequence = world.admit(f"r{number}", key, compute=False)
            assert sequence is not None
            world.compute(sequence, most=most)
            assert world.wrong(sequence) == []
            results.append((sequence.resident, sequence.copied, sequence.computed))
            world.manager.release(sequence)
            world.manager.check_integrity()
            results[-1] += (world.manager.sizes()["full"],)
        assert results[0] == results[1]
        found += results[0][1]
    assert found > 300
