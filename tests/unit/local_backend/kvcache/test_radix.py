from __future__ import annotations

import pytest

from local_backend.kvcache.evict import Lru
from local_backend.kvcache.granularity import calculate, measure
from local_backend.kvcache.keys import TokenKey
from local_backend.kvcache.pages import PagePool
from local_backend.kvcache.radix import RadixCache
from tests.unit.local_backend.kvcache.test_caches import SPACE, add, build, key_of, put
from tests.unit.local_backend.kvcache.world import World


def radix(pages: int = 64, page_size: int = 4, **options) -> RadixCache:
    cache = build("radix", pages, page_size, **options)
    assert isinstance(cache, RadixCache)
    return cache


def test_999_of_1000_tokens_are_reused_with_three_entries() -> None:
    """B03: one node for 1,000 tokens, split where the second prompt leaves it."""
    tree = measure("radix", 1, 1000, 999)
    index = measure("hash", 1, 1000, 999)
    assert (tree.reused, index.reused) == (999, 999)
    assert (tree.entries, tree.entries_after) == (1, 3)
    assert (index.entries, index.entries_after) == (1000, 1001)
    assert tree.updates < 20
    assert index.updates > 4_000


def test_a_coarse_index_recomputes_what_is_left_of_a_group() -> None:
    """B29: at 999 common tokens groups of 16 recompute seven, at 992 none."""
    assert measure("hash", 16, 1000, 999).reused == 992
    assert measure("hash", 16, 1000, 992).reused == 992
    assert measure("radix", 1, 1000, 992).reused == 992
    assert calculate(16, 1_000_000, 1000, 999).recomputed == 7
    assert calculate(16, 1_000_000, 1000, 992).recomputed == 0
    assert calculate(1, 1_000_000, 1000, 999).recomputed == 0
    assert [calculate(1, 0, 1000, common).computed for common in (999, 992)] == [1, 8]
    assert [calculate(16, 0, 1000, common).computed for common in (999, 992)] == [8, 8]


@pytest.mark.parametrize(("group", "count"), [(1, 1_000_000), (16, 62_500)])
def test_identities_of_a_document_of_a_million_tokens(group: int, count: int) -> None:
    grain = calculate(group, 1_000_000, 1000, 999, id_bytes=32)
    assert (grain.identities, grain.identity_bytes) == (count, count * 32)


def test_at_most_15_tokens_are_computed_again() -> None:
    worst = max(calculate(16, 0, 1000, common).recomputed for common in range(1000))
    assert worst == 15


def test_looking_splits_nothing_and_using_does() -> None:
    tree = radix()
    put(tree, key_of(list(range(16))))
    match = tree.match(key_of([*range(8), 9, 9, 9, 9]), 12)
    assert tree.entries == 1
    pin = tree.pin(match)
    assert (tree.entries, tree.books.splits) == (2, 1)
    assert (tree.pinned, tree.evictable) == (2, 2)
    tree.check_integrity()
    tree.unpin(pin)


def test_a_split_keeps_pages_and_identities() -> None:
    tree = radix()
    key = key_of(list(range(16)))
    pin = add(tree, key)
    before = tree.pinned_keys(pin, 0)
    put(tree, key_of([*range(8), 9, 9, 9, 9]))
    assert tree.books.splits == 1
    assert tree.pinned_keys(pin, 0) == before
    assert [page for _, page in before] == list(tree.match(key, 16).pages)
    tree.unpin(pin)
    tree.check_integrity()


def test_a_growing_answer_stays_one_node() -> None:
    tree = radix()
    pin = add(tree, key_of(list(range(8))))
    tokens = list(range(8))
    for token in range(20, 30):
        tokens += [token] * 4
        tree.extend(pin, key_of(tokens), tree.pool.allocate(1))
    assert tree.entries == 1
    tree.unpin(pin)
    tree.check_integrity()


def test_a_node_that_another_request_uses_does_not_grow() -> None:
    tree = radix()
    first = add(tree, key_of(list(range(8))))
    second = tree.pin(tree.match(key_of(list(range(8))), 8))
    tree.extend(first, key_of([*range(8), 1, 1, 1, 1]), tree.pool.allocate(1))
    tree.extend(second, key_of([*range(8), 2, 2, 2, 2]), tree.pool.allocate(1))
    assert tree.entries == 3
    for tail in (1, 2):
        assert tree.match(key_of([*range(8), *[tail] * 4]), 12).length == 12
    tree.unpin(first)
    tree.unpin(second)
    tree.check_integrity()


def test_eviction_takes_no_more_than_asked() -> None:
    tree = radix(pages=40)
    put(tree, key_of(list(range(160))))
    assert tree.evict(3) == 3
    assert tree.match(key_of(list(range(160))), 160).length == 148
    assert tree.entries == 1


def test_an_empty_namespace_is_forgotten() -> None:
    tree = radix()
    for salt in range(50):
        key = TokenKey(bytes([salt]) * 16, list(range(8)))
        put(tree, key)
        tree.evict(2)
    assert list(tree.nodes()) == []
    pin = tree.pin(tree.match(key_of([1, 2]), 1))
    tree.unpin(pin)
    assert list(tree.nodes()) == []


def test_the_best_tail_is_chosen_among_many() -> None:
    tree = radix(pages=200, page_size=8, tails=True)
    base = list(range(100, 108))
    for number in range(1, 60):
        put(tree, key_of([*base, 7, 7, 7, number, 0, 0, 0, 0]))
    put(tree, key_of([*base, 7, 7, 7, 30, 5, 5, 5, 5]))
    match = tree.match(key_of([*base, 7, 7, 7, 30, 5, 5, 9, 9]), 15)
    assert (match.length, match.tail_tokens) == (8, 6)
    limited = tree.match(key_of([*base, 7, 7, 7, 30, 5, 5, 9, 9]), 11)
    assert limited.tail_tokens == 3


def test_a_tail_is_pinned_by_itself() -> None:
    tree = radix(tails=True)
    put(tree, key_of([1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9]))
    match = tree.match(key_of([1, 2, 3, 4, 5, 6, 0, 0]), 7)
    assert (match.length, match.tail_tokens, match.tail.idle) == (4, 2, 2)
    pin = tree.pin(match, tail=True)
    assert (tree.pinned, tree.evictable) == (2, 1)
    tree.unpin(pin.tail)
    assert (tree.pinned, tree.evictable) == (1, 2)
    tree.unpin(pin)
    tree.check_integrity()


def test_cost_of_a_long_match_does_not_grow_with_its_pages() -> None:
    """Bookkeeping of a hit depends on the nodes passed, not on the tokens."""
    updates = []
    for length in (64, 4096):
        tree = RadixCache(PagePool(8192), 1, Lru())
        key = TokenKey(SPACE, list(range(length)))
        put(tree, key)
        before = tree.books.updates
        tree.unpin(tree.pin(tree.match(key, length)))
        updates.append(tree.books.updates - before)
    assert updates[0] == updates[1]


def test_catching_up_forgets_the_copy_into_a_page_that_is_swapped() -> None:
    world = World(page_size=8, tails=True)
    prompt = list(range(100, 124))
    world.manager.release(world.admit("first", [*prompt[:20], 7, 7, 7, 7]))
    leader = world.admit("leader", [*prompt, 1], compute=False)
    assert leader is not None
    world.compute(leader, commit=False)
    sibling = world.admit("sibling", [*prompt, 2], compute=False)
    assert sibling is not None
    assert [copy.target for copy in world.manager.due_copies()] == [sibling.pages()[2]]
    world.manager.commit(leader, 24)
    assert world.manager.catch_up(sibling) == 4
    assert world.manager.due_copies() == []
    assert world.wrong(sibling) == []
    world.manager.check_integrity()
