from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_backend.errors import CacheIntegrityError, OutOfPagesError
from local_backend.kvcache.pages import NULL_PAGE, PagePool


def test_the_null_page_is_never_handed_out() -> None:
    pool = PagePool(5)
    assert sorted(pool.allocate(5)) == [1, 2, 3, 4, 5]
    assert NULL_PAGE == 0


def test_a_failed_allocation_takes_nothing() -> None:
    pool = PagePool(3)
    pool.allocate(2)
    with pytest.raises(OutOfPagesError, match="2 pages wanted, 1 of 3 free"):
        pool.allocate(2)
    assert pool.available == 1


def test_freed_pages_are_used_again_first() -> None:
    pool = PagePool(9)
    pages = pool.allocate(3)
    pool.drop(pages[1:2])
    assert pool.allocate(1) == pages[1:2]


def test_a_pool_needs_a_page() -> None:
    with pytest.raises(ValueError, match="at least one page"):
        PagePool(0)


def test_a_page_is_free_when_its_last_holder_drops_it() -> None:
    pool = PagePool(4)
    pages = pool.allocate(2)
    pool.share(pages)
    pool.share(pages[:1])
    assert [pool.holders(page) for page in pages] == [3, 2]
    assert pool.shared_pages == 2
    assert pool.drop(pages) == 0
    assert pool.drop(pages) == 1
    assert pool.drop(pages[:1]) == 1
    assert (pool.available, pool.shared_pages) == (4, 0)


@pytest.mark.parametrize(
    ("owned", "cached", "message"),
    [
        ([], [], "lost or unknown"),
        ([1, 2, 3], [], "free and owned"),
        ([1], [2, 3], "free and cached"),
        ([1, 2], [2], "owned and cached"),
        ([1, 1, 2], [], "holders of a page"),
        ([1], [2, 2], "listed twice"),
        ([1, 2, 9], [], "lost or unknown"),
    ],
)
def test_false_books_are_found(owned: list[int], cached: list[int], message: str) -> None:
    pool = PagePool(3)
    assert list(pool.allocate(2)) == [2, 1]
    pool.check([1], [2])
    with pytest.raises(CacheIntegrityError, match=message):
        pool.check(owned, cached)


def test_a_page_freed_twice_is_found() -> None:
    pool = PagePool(3)
    pages = pool.allocate(1)
    pool.drop(pages)
    pool.drop(pages)
    with pytest.raises(CacheIntegrityError, match="listed twice"):
        pool.check([], [])


def test_a_shared_page_that_nobody_holds_is_found() -> None:
    pool = PagePool(2)
    pages = pool.allocate(1)
    pool.share(pages)
    with pytest.raises(CacheIntegrityError, match="no sequence holds"):
        pool.check([], list(pages))


@given(st.lists(st.tuples(st.sampled_from("asd"), st.integers(0, 7)), max_size=60))
def test_every_page_is_somewhere(steps: list[tuple[str, int]]) -> None:
    pool = PagePool(8)
    holdings: list[int] = []
    for step, number in steps:
        if step == "a" and number <= pool.available:
            holdings.extend(pool.allocate(number))
        elif step == "s" and holdings:
            pool.share([holdings[number % len(holdings)]])
            holdings.append(holdings[number % len(holdings)])
        elif step == "d" and holdings:
            pool.drop(array("i", [holdings.pop(number % len(holdings))]))
        pool.check(holdings, [])
        assert pool.available == 8 - len(set(holdings))
        assert all(pool.holders(page) == holdings.count(page) for page in holdings)
