"""What all prefix caches have to do, one by one."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from local_backend.errors import CacheIntegrityError, CacheStateError
from local_backend.kvcache.base import Match, Pin, PrefixCache
from local_backend.kvcache.caches import CACHES, POLICIES, make_cache
from local_backend.kvcache.keys import Namespace, Span, TokenKey
from local_backend.kvcache.pages import PagePool

SPACE = Namespace("w")
ALL = sorted(CACHES)


def key_of(tokens: list[int], spans: tuple[Span, ...] = ()) -> TokenKey:
    return TokenKey(SPACE, tokens, spans)


def build(name: str, pages: int = 64, page_size: int = 4, **options) -> PrefixCache:
    return make_cache(name, PagePool(pages), page_size, **options)


def add(cache: PrefixCache, key: TokenKey) -> Pin:
    """Insert all whole pages of a prompt; its pin stays."""
    match = cache.match(key, len(key))
    pin = cache.pin(match)
    pages = cache.pool.allocate(len(key) // cache.page_size - pin.pages)
    known = cache.extend(pin, key, pages)
    cache.pool.drop(pages[:known])
    return pin


def put(cache: PrefixCache, key: TokenKey) -> None:
    cache.unpin(add(cache, key))


@pytest.mark.parametrize("name", ALL)
def test_47_tokens_after_45_reuse_32(name: str) -> None:
    """B02: whole pages of 16 only, so 32 of the 45 common tokens; 15 are computed."""
    cache = build(name, page_size=16)
    put(cache, key_of(list(range(45))))
    again = key_of([*range(45), 900, 901])
    match = cache.match(again, len(again) - 1)
    assert match.length == 32
    assert len(again) - match.length == 15
    assert list(match.pages) == list(cache.match(key_of(list(range(45))), 44).pages)


@pytest.mark.parametrize("name", ALL)
def test_a_hit_ends_at_the_first_difference(name: str) -> None:
    cache = build(name)
    put(cache, key_of(list(range(40))))
    for changed in range(40):
        tokens = list(range(40))
        tokens[changed] = 77
        assert cache.match(key_of(tokens), 40).length == changed // 4 * 4


@pytest.mark.parametrize("name", ALL)
def test_the_same_tokens_after_others_are_no_hit(name: str) -> None:
    cache = build(name)
    put(cache, key_of([1, 2, 3, 4, 5, 6, 7, 8]))
    assert cache.match(key_of([9, 9, 9, 9, 5, 6, 7, 8]), 8).length == 0
    assert cache.match(key_of([5, 6, 7, 8]), 4).length == 0


@pytest.mark.parametrize("name", ALL)
def test_the_tail_of_a_chain_goes_first(name: str) -> None:
    """B05: one page of a chain of 195 tokens is evicted; 176 are found afterwards."""
    cache = build(name, pages=12, page_size=16)
    key = key_of(list(range(195)))
    put(cache, key)
    assert cache.match(key, 194).length == 192
    assert cache.evict(1) == 1
    assert cache.match(key, 194).length == 176
    cache.check_integrity()


@pytest.mark.parametrize("name", ALL)
def test_pinned_pages_are_never_evicted(name: str) -> None:
    cache = build(name, pages=8)
    used = key_of([*range(8), 50, 51, 52, 53])
    pin = add(cache, used)
    put(cache, key_of([*range(8), 60, 61, 62, 63]))
    assert (cache.pinned, cache.evictable) == (3, 1)
    assert cache.evict(8) == 1
    assert cache.match(used, 12).length == 12
    cache.unpin(pin)
    assert cache.evict(8) == 3
    assert cache.entries == 0
    cache.check_integrity()


@pytest.mark.parametrize("name", ALL)
def test_a_hit_makes_a_prompt_recent(name: str) -> None:
    cache = build(name)
    old, new = key_of([1] * 8), key_of([2] * 8)
    put(cache, old)
    put(cache, new)
    cache.unpin(cache.pin(cache.match(old, 8)))
    cache.evict(2)
    assert (cache.match(old, 8).length, cache.match(new, 8).length) == (8, 0)


@pytest.mark.parametrize("name", ALL)
def test_looking_is_no_use(name: str) -> None:
    cache = build(name)
    old, new = key_of([1] * 8), key_of([2] * 8)
    put(cache, old)
    put(cache, new)
    for _ in range(5):
        cache.match(old, 8)
    cache.evict(2)
    assert (cache.match(old, 8).length, cache.match(new, 8).length) == (0, 8)


@pytest.mark.parametrize("name", ALL)
def test_hits_count_for_lfu(name: str) -> None:
    """A hit counter that is never raised would turn LFU into LRU."""
    cache = build(name, policy="lfu")
    often, late = key_of([1] * 8), key_of([2] * 8)
    put(cache, often)
    for _ in range(3):
        cache.unpin(cache.pin(cache.match(often, 8)))
    put(cache, late)
    cache.evict(2)
    assert (cache.match(often, 8).length, cache.match(late, 8).length) == (8, 0)


@pytest.mark.parametrize("name", ALL)
def test_pages_that_are_there_already_stay_with_the_caller(name: str) -> None:
    cache = build(name)
    first, second = key_of(list(range(12))), key_of([*range(8), 90, 91, 92, 93])
    one = cache.pin(cache.match(first, 12))
    two = cache.pin(cache.match(second, 12))
    assert cache.extend(one, first, cache.pool.allocate(3)) == 0
    pages = cache.pool.allocate(3)
    assert cache.extend(two, second, pages) == 2
    assert cache.cached == 4
    cache.pool.drop(pages[:2])
    assert cache.match(second, 12).pages[-1] == pages[2]
    cache.unpin(one)
    cache.unpin(two)
    cache.check_integrity()
    cache.pool.check([], cache.all_pages())


@pytest.mark.parametrize("name", ALL)
def test_a_page_in_two_prompts_is_counted_once(name: str) -> None:
    """E24: shared pages counted twice made the sum 160 pages larger than the memory."""
    cache = build(name, pages=100)
    pins = [add(cache, key_of([*range(40), number, 0, 0, 0])) for number in range(20, 60)]
    total = cache.pool.available + cache.evictable + cache.pinned
    assert total == 100
    for pin in pins:
        cache.unpin(pin)
        assert cache.pool.available + cache.evictable + cache.pinned == 100
        cache.check_integrity()


@pytest.mark.parametrize("name", ALL)
def test_a_pin_is_given_back_once(name: str) -> None:
    cache = build(name)
    pin = add(cache, key_of(list(range(8))))
    cache.unpin(pin)
    for call in (cache.unpin, cache.repin):
        with pytest.raises(CacheStateError, match="given back before"):
            call(pin)
    with pytest.raises(CacheStateError, match="given back before"):
        cache.extend(pin, key_of(list(range(12))), cache.pool.allocate(1))
    cache.check_integrity()


@pytest.mark.parametrize("name", ALL)
def test_an_outdated_match_is_refused(name: str) -> None:
    cache = build(name)
    key = key_of(list(range(8)))
    put(cache, key)
    match = cache.match(key, 8)
    cache.evict(1)
    with pytest.raises(CacheStateError, match="changed since the match"):
        cache.pin(match)


@pytest.mark.parametrize("name", ALL)
def test_a_match_says_what_pinning_would_protect(name: str) -> None:
    cache = build(name)
    pin = add(cache, key_of([*range(8)]))
    put(cache, key_of([*range(16)]))
    match = cache.match(key_of([*range(16)]), 12)
    before = cache.evictable
    assert (match.length, match.idle) == (12, 1)
    other = cache.pin(match)
    assert before - cache.evictable == 1
    cache.unpin(other)
    cache.unpin(pin)


@pytest.mark.parametrize("name", ALL)
def test_forgetting_everything_waits_for_the_users(name: str) -> None:
    cache = build(name)
    pin = add(cache, key_of(list(range(8))))
    with pytest.raises(CacheStateError, match="2 cached pages are in use"):
        cache.reset()
    cache.unpin(pin)
    assert cache.reset() == 2
    assert cache.pool.available == 64


@pytest.mark.parametrize("name", ALL)
def test_a_second_pin_protects_alone(name: str) -> None:
    cache = build(name)
    pin = add(cache, key_of(list(range(8))))
    twin = cache.repin(pin)
    cache.unpin(pin)
    assert (cache.evictable, cache.evict(9)) == (0, 0)
    cache.unpin(twin)
    assert cache.evictable == 2


@pytest.mark.parametrize("name", ALL)
def test_pages_without_tokens_are_refused(name: str) -> None:
    cache = build(name)
    key = key_of(list(range(7)))
    pin = cache.pin(cache.match(key, 7))
    with pytest.raises(ValueError, match="more pages than"):
        cache.extend(pin, key, cache.pool.allocate(2))


@pytest.mark.parametrize("name", ALL)
def test_the_order_of_eviction_reaches_whoever_listens(name: str) -> None:
    cache = build(name)
    key = key_of(list(range(16)))
    put(cache, key)
    pages = cache.match(key, 16).pages
    told: list[tuple[bytes, int]] = []
    cache.victim_sink = told.extend
    cache.evict(3)
    chain = key.chain(4, 4)
    assert told == [(chain[i], pages[i]) for i in (3, 2, 1)]


@pytest.mark.parametrize("name", ALL)
def test_identities_of_pinned_pages(name: str) -> None:
    cache = build(name)
    put(cache, key_of(list(range(8))))
    key = key_of([*range(8), 5, 5, 5, 5, 6, 6, 6, 6])
    pin = add(cache, key)
    pages = cache.match(key, 16).pages
    assert cache.pinned_keys(pin, 1) == list(zip(key.chain(4, 4)[1:], pages[1:], strict=True))
    cache.unpin(pin)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("other", ALL)
def test_one_cache_takes_over_what_another_held(name: str, other: str) -> None:
    cache = build(name)
    keys = [
        key_of([*range(8), number, 1, 2, 3, *range(number)], (Span(9, 2, b"cat"),))
        for number in range(5, 12)
    ]
    for key in keys:
        put(cache, key)
    cache.unpin(cache.pin(cache.match(keys[2], 99)))
    twin = build(other)
    twin.pool.allocate(cache.cached)
    twin.adopt(cache.export())
    twin.check_integrity()
    for _ in range(cache.cached):
        assert [twin.match(key, 99).pages for key in keys] == [
            cache.match(key, 99).pages for key in keys
        ]
        cache.evict(1)
        twin.evict(1)
    put(twin, keys[0])
    with pytest.raises(CacheStateError, match="empty cache"):
        twin.adopt([])


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="hash, naive, radix"):
        build("tree")
    with pytest.raises(ValueError, match="cost, lfu, lru"):
        build("radix", policy="mru")
    with pytest.raises(ValueError, match="knows no order 'cost'"):
        build("naive", policy="cost")
    with pytest.raises(ValueError, match="at least one token"):
        build("radix", page_size=0)
    assert set(POLICIES) == {"lru", "lfu", "cost"}


class Colliding(TokenKey):
    """All pages at one place have the same identity, as with a broken digest."""

    __slots__ = ()

    def identity(self, page_size: int, index: int, parent: bytes) -> bytes:
        return bytes([index]) * 16

    def identities(self, page_size: int, first: int, last: int, parent: bytes) -> list[bytes]:
        return [bytes([index]) * 16 for index in range(first, last)]


def test_equal_identities_of_different_prompts_do_not_mix() -> None:
    """The tokens are compared as well, and so is what stands before them."""
    cache = build("hash")
    first = Colliding(SPACE, [1, 1, 1, 1, 7, 7, 7, 7])
    second = Colliding(SPACE, [2, 2, 2, 2, 7, 7, 7, 7])
    put(cache, first)
    assert cache.match(second, 8).length == 0
    put(cache, second)
    assert cache.match(first, 8).length == cache.match(second, 8).length == 8
    assert set(cache.match(first, 8).pages).isdisjoint(cache.match(second, 8).pages)
    assert cache.collisions > 0
    cache.check_integrity()
    cache.evict(2)
    assert sorted(cache.match(key, 8).length for key in (first, second)) == [0, 8]
    cache.check_integrity()
    assert cache.reset() == 2
    assert cache.match(second, 8).length == 0


PAGES = st.lists(st.integers(0, 2), min_size=1, max_size=14)
SPANS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 4), st.sampled_from("ab")), max_size=2
)


def spans_of(drawn: list[tuple[int, int, str]], length: int) -> tuple[Span, ...]:
    found: list[Span] = []
    for start, size, name in sorted(drawn):
        if start + size <= length and (not found or found[-1].start + found[-1].length <= start):
            found.append(Span(start, size, name.encode()))
    return tuple(found)


@settings(max_examples=300)
@example([([0, 0, 0], [(0, 1, "a")])], [0], [(0, 1, "a")], 1)
@given(st.lists(st.tuples(PAGES, SPANS), min_size=1, max_size=8), PAGES, SPANS, st.integers(0, 14))
def test_the_tree_finds_what_the_list_finds(
    prompts: list[tuple[list[int], list[tuple[int, int, str]]]],
    wanted: list[int],
    spans: list[tuple[int, int, str]],
    limit: int,
) -> None:
    """Also with placeholders, and to the last token of a page that agrees only in part."""
    caches = [build(name, page_size=3, tails=True) for name in ("radix", "naive")]
    for tokens, drawn in prompts:
        for cache in caches:
            put(cache, key_of(tokens, spans_of(drawn, len(tokens))))
    key = key_of(wanted, spans_of(spans, len(wanted)))
    found: list[Match] = [cache.match(key, limit) for cache in caches]
    assert found[0].length == found[1].length
    assert found[0].tail_tokens == found[1].tail_tokens
    assert len(found[0].pages) == found[0].length // 3


def test_a_broken_tree_is_found() -> None:
    cache = build("radix")
    put(cache, key_of(list(range(8))))
    node = next(node for node in cache.nodes() if node.pages)
    node.pages = array("i", node.pages[:1])
    with pytest.raises(CacheIntegrityError):
        cache.check_integrity()


@pytest.mark.parametrize("name", ALL)
def test_a_pin_too_many_is_found(name: str) -> None:
    cache = build(name)
    pin = add(cache, key_of(list(range(8))))
    entry = pin.place if name == "radix" else pin.place[-1]
    entry.lock -= 1
    with pytest.raises(CacheIntegrityError):
        cache.check_integrity()


@given(st.lists(st.tuples(PAGES, SPANS, st.integers(0, 6)), min_size=1, max_size=14), st.booleans())
def test_the_hash_index_files_every_page_under_its_identity(
    drawn: list[tuple[list[int], list[tuple[int, int, str]], int]], moves: bool
) -> None:
    """However prompts part, go on and lose their ends: digests from the start are the same."""
    cache = build("hash", page_size=2)
    for tokens, spans, gone in drawn:
        key = key_of(tokens, spans_of(spans, len(tokens)))
        pin = add(cache, key)
        count = len(key) // 2
        expected = zip(key.copy().chain(2, count), cache.match(key, len(key)).pages, strict=False)
        assert cache.pinned_keys(pin, 0) == list(expected)
        cache.evict(gone)
        cache.check_integrity()
        cache.unpin(pin)
        if moves:
            other = build("hash", page_size=2)
            other.pool.allocate(cache.cached)
            other.adopt(cache.export())
            cache = other
            assert cache.match(key, len(key)).length == count * 2
        cache.check_integrity()
