from __future__ import annotations

import pytest

from local_backend.errors import (
    CacheStateError,
    OutOfPagesError,
    QueueFullError,
    RequestTooLargeError,
)
from local_backend.kvcache.admission import AdmissionQueue
from local_backend.kvcache.caches import CACHES
from local_backend.kvcache.events import Event, EventKind
from local_backend.kvcache.keys import Namespace, TokenKey
from local_backend.kvcache.pages import SizeInfo
from local_backend.kvcache.sequence import Container
from tests.unit.local_backend.kvcache.world import KV_BYTES, World

ALL = sorted(CACHES)


def tokens(seed: int, length: int) -> list[int]:
    return [seed * 1000 + position for position in range(length)]


def full(world: World) -> SizeInfo:
    return world.manager.sizes()["full"]


# What a request gets.


@pytest.mark.parametrize("cache", ALL)
def test_usage_adds_up_to_the_prompt(cache: str) -> None:
    world = World(cache=cache, page_size=16)
    first = world.admit("first", tokens(1, 45))
    assert first is not None
    second = world.admit("second", [*tokens(1, 45), 7, 8])
    assert second is not None
    usage = world.manager.usage(second)
    assert (usage.resident, usage.restored, usage.computed) == (32, 0, 15)
    assert (usage.hit, usage.copied, usage.published) == (32, 0, 0)
    assert world.manager.usage(first).published == 32
    assert world.wrong(second) == []


def test_something_is_always_computed() -> None:
    world = World(page_size=4)
    prompt = tokens(1, 16)
    first = world.admit("first", prompt)
    assert first is not None
    again = world.admit("again", prompt, compute=False)
    assert again is not None
    assert world.manager.usage(again).hit == 12


def test_extensions_of_a_prompt_hit_as_repeats_do() -> None:
    world = World(page_size=4)
    prompt = tokens(1, 16)
    world.manager.release(world.admit("first", prompt))
    assert world.manager.hit_length(TokenKey(Namespace("world"), prompt)) == 12
    longer = TokenKey(Namespace("world"), [*prompt, 1, 2, 3])
    assert world.manager.hit_length(longer) == 16


def test_a_part_of_a_page_is_copied_and_the_source_untouched() -> None:
    world = World(page_size=8, tails=True)
    first = world.admit("first", tokens(1, 24))
    assert first is not None
    before = world.stores["full"].read_page(first.pages()[2])
    other = world.admit("other", [*tokens(1, 21), 5, 5, 5, 5], compute=False)
    assert other is not None
    (copy,) = world.manager.due_copies()
    assert (copy.source, copy.target, copy.tokens) == (first.pages()[2], other.pages()[2], 5)
    world.manager.release(first)
    world.evict(40)
    assert world.stores["full"].read_page(copy.source) == before
    world.compute(other)
    assert world.manager.usage(other).copied == 5
    assert world.manager.usage(other).resident == 21
    assert world.wrong(other) == []
    assert world.manager.due_copies() == []
    world.manager.check_integrity()


def test_page_copies_touch_their_target_only() -> None:
    """E17: canaries on all other pages survive every copy."""
    world = World(page_size=4, pages=12)
    first = world.admit("first", tokens(1, 10))
    assert first is not None
    twin = world.manager.fork(first, "twin")
    store = world.stores["full"]
    used = {*first.pages(), *twin.pages()}
    canaries = {page: bytes([page]) * store.page_bytes for page in range(13) if page not in used}
    for page, canary in canaries.items():
        store.write_page(page, canary)
    world.manager.append(twin, [1])
    (copy,) = world.manager.prepare_write(twin, 10, 11)
    world.manager.run_copies()
    assert store.read_page(copy.source) == store.read_page(copy.target)
    for page, canary in canaries.items():
        if page != copy.target:
            assert store.read_page(page) == canary


# Sharing.


@pytest.mark.parametrize("cache", ALL)
def test_two_answers_leave_a_shared_page_without_touching_each_other(cache: str) -> None:
    """B04."""
    world = World(page_size=4, cache=cache)
    first = world.admit("first", tokens(1, 10))
    assert first is not None
    twin = world.manager.fork(first, "twin")
    assert twin.pages() == first.pages()
    shared = first.pages()[2]
    assert world.groups[0].pool.holders(shared) == 2
    for sequence, token in ((first, 1), (twin, 2)):
        world.manager.append(sequence, [token])
        world.compute(sequence)
    assert first.pages()[:2] == twin.pages()[:2]
    assert first.pages()[2] != twin.pages()[2]
    assert shared in (first.pages()[2], twin.pages()[2])
    assert world.wrong(first) == world.wrong(twin) == []
    world.manager.check_integrity()


def test_the_last_holder_writes_without_a_copy() -> None:
    world = World(page_size=4)
    first = world.admit("first", tokens(1, 10))
    assert first is not None
    twin = world.manager.fork(first, "twin")
    world.manager.release(first)
    world.manager.append(twin, [1])
    assert world.manager.prepare_write(twin, 10, 11) == []


def test_a_page_is_writable_only_alone_and_open() -> None:
    world = World(page_size=4)
    sequence = world.admit("first", tokens(1, 10))
    assert sequence is not None
    group, table = world.groups[0], sequence.tables[0]
    assert [group.is_writable(table, index) for index in range(3)] == [False, False, True]
    twin = world.manager.fork(sequence, "twin")
    assert not group.is_writable(table, 2)
    world.manager.release(twin)
    assert group.is_writable(table, 2)
    with pytest.raises(CacheStateError, match="page 1 of 'first' is published"):
        world.manager.prepare_write(sequence, 5, 6)
    with pytest.raises(CacheStateError, match="no positions 11 to 13"):
        world.manager.prepare_write(sequence, 11, 13)


def test_a_copy_that_is_due_forbids_what_would_read_its_target() -> None:
    world = World(page_size=4, tails=True)
    world.manager.release(world.admit("first", tokens(1, 12)))
    sequence = world.admit("other", [*tokens(1, 10), 5, 5], compute=False)
    assert sequence is not None
    with pytest.raises(CacheStateError, match="copy into a page"):
        world.manager.fork(sequence, "twin")
    with pytest.raises(CacheStateError, match="copy into a page"):
        world.manager.commit(sequence, 12)
    assert world.manager.finish_copies() == 1
    world.manager.commit(sequence, 12)


def test_a_request_that_ends_takes_its_copies_along() -> None:
    world = World(page_size=4, tails=True)
    world.manager.release(world.admit("first", tokens(1, 12)))
    sequence = world.admit("other", [*tokens(1, 10), 5, 5], compute=False)
    assert sequence is not None
    world.manager.release(sequence)
    assert world.manager.due_copies() == []
    assert full(world).protected == 0
    world.manager.check_integrity()


def test_what_a_fork_still_holds_is_not_published() -> None:
    world = World(page_size=4)
    first = world.admit("first", tokens(1, 10), compute=False)
    assert first is not None
    world.compute(first, commit=False)
    twin = world.manager.fork(first, "twin")
    assert full(world).evictable == 0
    assert world.manager.commit(first, 10) == 0
    world.manager.release(twin)
    assert world.manager.commit(first, 10) == 2
    world.manager.check_integrity()


# Room.


@pytest.mark.parametrize("cache", ALL)
def test_a_refused_request_changes_nothing(cache: str) -> None:
    world = World(pages=10, page_size=4, cache=cache)
    old, new = tokens(1, 16), tokens(2, 12)
    world.manager.release(world.admit("old", old))
    keeper = world.admit("new", new)
    assert keeper is not None
    before = world.manager.sizes()
    # It would reuse the four old pages and needs seven more; six at most can be had.
    assert world.manager.admit("big", TokenKey(Namespace("world"), [*old, *tokens(3, 21)])) is None
    assert world.manager.sizes() == before
    world.manager.check_integrity()
    assert world.manager.events.counts[EventKind.REFUSE].events == 1
    # The refused request was no use of the old pages: they still go first.
    world.manager.release(keeper)
    world.evict(3)
    assert world.manager.hit_length(TokenKey(Namespace("world"), old)) == 4
    assert world.manager.hit_length(TokenKey(Namespace("world"), new)) == 8


def test_hit_pages_do_not_count_as_room() -> None:
    """Pages that the request itself reuses cannot be evicted for it."""
    world = World(pages=9, page_size=4)
    assert world.admit("keeper", [1]) is not None
    world.manager.release(world.admit("old", tokens(1, 32)))
    assert full(world).usable == 8
    assert world.admit("more", [*tokens(1, 32), 9]) is None
    assert world.admit("other", [*tokens(1, 28), 9]) is not None


def test_the_source_of_a_tail_never_keeps_a_request_out() -> None:
    """The memory holds the request exactly; the copied page's source has to make room."""
    world = World(pages=6, page_size=4, tails=True)
    world.manager.release(world.admit("old", tokens(1, 24)))
    sequence = world.admit("new", [*tokens(1, 18), *tokens(2, 6)])
    assert sequence is not None
    assert (sequence.resident, sequence.copied) == (16, 0)
    assert world.wrong(sequence) == []
    world.manager.check_integrity()


def test_a_request_that_can_never_fit_is_told_so() -> None:
    world = World(pages=4, page_size=4)
    with pytest.raises(RequestTooLargeError, match="needs 5 pages of group full, which has 4"):
        world.admit("big", tokens(1, 17))


def test_pages_of_unfinished_ends_are_used_first() -> None:
    """E07: two prompts with partly filled last pages in a tight memory; both still hit."""
    world = World(pages=9, page_size=4)
    one, two = tokens(1, 18), tokens(2, 14)
    for name, prompt in (("one", one), ("two", two)):
        world.manager.release(world.admit(name, prompt))
    assert full(world) == SizeInfo(9, 2, 7, 0)
    world.manager.release(world.admit("three", tokens(3, 3)))
    assert world.manager.events.counts[EventKind.EVICT].pages == 0
    assert world.manager.hit_length(TokenKey(Namespace("world"), one)) == 16
    assert world.manager.hit_length(TokenKey(Namespace("world"), two)) == 12


def test_growing_without_room_changes_nothing() -> None:
    world = World(pages=5, page_size=4)
    sequence = world.admit("one", tokens(1, 16))
    other = world.admit("two", tokens(2, 4))
    assert sequence is not None
    assert other is not None
    before = world.manager.sizes()
    with pytest.raises(OutOfPagesError):
        world.manager.append(sequence, [1])
    assert world.manager.sizes() == before
    assert len(sequence) == 16
    world.manager.release(other)
    world.manager.append(sequence, [1])


@pytest.mark.parametrize("cache", ALL)
def test_static_and_dynamic_containers_hold_the_same(cache: str) -> None:
    """B07: same KV; only the static one has its pages from the beginning."""
    found = []
    for container in Container:
        world = World(page_size=4, cache=cache)
        sequence = world.admit("one", tokens(1, 9), container=container, reserve=12)
        assert sequence is not None
        counts = [len(sequence.pages())]
        for token in range(12):
            world.manager.append(sequence, [token])
            world.compute(sequence)
            counts.append(len(sequence.pages()))
        assert world.wrong(sequence) == []
        found.append((world.read(sequence), counts[0], counts[-1]))
        world.manager.check_integrity()
    assert found[0][0] == found[1][0]
    assert found[0][1:] == (3, 6)
    assert found[1][1:] == (6, 6)


def test_a_reserve_is_a_promise_and_a_limit() -> None:
    world = World(pages=5, page_size=4)
    kind = Container.STATIC
    sequence = world.admit("one", tokens(1, 9), container=kind, reserve=7)
    assert sequence is not None
    assert world.admit("two", tokens(2, 8)) is None
    world.manager.append(sequence, tokens(3, 7))
    with pytest.raises(OutOfPagesError, match="reserved 16 tokens, 17 wanted"):
        world.manager.append(sequence, [1])


def test_rejected_candidates_are_taken_back() -> None:
    world = World(page_size=4)
    sequence = world.admit("one", tokens(1, 10))
    assert sequence is not None
    world.manager.append(sequence, [1, 2, 3, 4, 5])
    world.compute(sequence, commit=False)
    world.manager.truncate(sequence, 12)
    assert (len(sequence), len(sequence.pages())) == (12, 3)
    world.compute(sequence)
    assert sequence.tables[0].published == 3
    world.manager.check_integrity()
    for length in (9, 11, 13):
        with pytest.raises(CacheStateError, match="cannot be cut"):
            world.manager.truncate(sequence, length)


def test_nothing_is_published_beyond_what_is_computed() -> None:
    world = World(page_size=4)
    sequence = world.admit("one", tokens(1, 20), compute=False)
    assert sequence is not None
    assert world.manager.commit(sequence, 7) == 1
    key = TokenKey(Namespace("world"), tokens(1, 20))
    assert world.manager.hit_length(key) == 4
    for wrong in (6, 21):
        with pytest.raises(CacheStateError, match="is not possible"):
            world.manager.commit(sequence, wrong)


def test_names_and_ends() -> None:
    world = World(page_size=4)
    sequence = world.admit("one", tokens(1, 5))
    assert sequence is not None
    with pytest.raises(CacheStateError, match="live already"):
        world.admit("one", [1])
    with pytest.raises(CacheStateError, match="live already"):
        world.manager.fork(sequence, "one")
    with pytest.raises(CacheStateError, match="no tokens"):
        world.admit("none", [])
    with pytest.raises(CacheStateError, match="1 requests are live"):
        world.manager.reset()
    world.manager.release(sequence)
    for call in (world.manager.release, lambda s: world.manager.append(s, [1])):
        with pytest.raises(CacheStateError, match="was released"):
            call(sequence)
    assert world.manager.reset() == 1
    assert full(world).available == 40


# Waiting.


def test_requests_wait_in_order_and_none_is_overtaken() -> None:
    """B05: B does not fit while A runs; it waits, A is unchanged."""
    world = World(pages=6, page_size=4)
    queue = AdmissionQueue(world.manager, 2)
    space = Namespace("world")
    first = queue.submit("A", TokenKey(space, tokens(1, 16)))
    assert first is not None
    world.compute(first)
    kept = world.read(first)
    assert queue.submit("B", TokenKey(space, tokens(2, 12))) is None
    assert queue.submit("C", TokenKey(space, tokens(3, 4))) is None
    assert len(queue) == 2
    with pytest.raises(QueueFullError, match="2 wait already"):
        queue.submit("D", TokenKey(space, tokens(4, 4)))
    with pytest.raises(CacheStateError, match="waits already"):
        queue.submit("C", TokenKey(space, [1]))
    with pytest.raises(RequestTooLargeError):
        queue.submit("E", TokenKey(space, tokens(5, 99)))
    assert queue.admit_waiting() == []
    assert world.read(first) == kept
    world.manager.release(first)
    assert [sequence.name for sequence in queue.admit_waiting()] == ["B", "C"]
    assert len(queue) == 0


def test_a_waiting_request_can_go_away() -> None:
    world = World(pages=4, page_size=4)
    queue = AdmissionQueue(world.manager, 2)
    space = Namespace("world")
    first = queue.submit("A", TokenKey(space, tokens(1, 16)))
    queue.submit("B", TokenKey(space, tokens(2, 12)))
    assert queue.cancel("B")
    assert not queue.cancel("B")
    world.manager.release(first)
    assert queue.admit_waiting() == []


def test_without_a_queue_nobody_waits() -> None:
    world = World(pages=4, page_size=4)
    queue = AdmissionQueue(world.manager, 0)
    space = Namespace("world")
    queue.submit("A", TokenKey(space, tokens(1, 16)))
    with pytest.raises(QueueFullError):
        queue.submit("B", TokenKey(space, tokens(2, 4)))


def test_a2_keeps_its_pages_when_a1_ends_and_b_arrives() -> None:
    """B05: 11 shared pages; only counting the users protects them."""
    world = World(pages=17, page_size=16)
    shared = tokens(1, 11 * 16)
    first, second = world.admit("A1", shared), world.admit("A2", [*shared, 5])
    assert first is not None
    assert second is not None
    assert second.pages()[:10] == first.pages()[:10]
    kept = world.read(second)
    world.manager.release(first)
    assert world.admit("B", tokens(2, 90)) is None
    assert world.admit("C", tokens(2, 60)) is not None
    assert world.read(second) == kept
    assert world.wrong(second) == []


# Events.


def test_everything_that_happens_is_told() -> None:
    world = World(pages=6, page_size=4, tails=True)
    told: list[Event] = []
    world.manager.events.listen(told.append)
    world.manager.release(world.admit("one", tokens(1, 12)))
    again = world.admit("two", [*tokens(1, 6), 9, 9])
    assert again is not None
    world.admit("three", tokens(3, 99 // 4))
    world.manager.release(again)
    world.manager.release(world.admit("four", tokens(4, 24)))
    kinds = [(event.kind, event.request, event.tokens or event.pages) for event in told]
    assert kinds == [
        (EventKind.MISS, "one", 0),
        (EventKind.PUBLISH, "one", 3),
        (EventKind.COPY, "two", 1),
        (EventKind.HIT, "two", 6),
        (EventKind.PUBLISH, "two", 1),
        (EventKind.REFUSE, "three", 6),
        (EventKind.EVICT, "four", 4),
        (EventKind.MISS, "four", 0),
        (EventKind.PUBLISH, "four", 6),
    ]
    assert world.manager.events.counts[EventKind.MISS].events == 2
    assert world.manager.events.counts[EventKind.HIT].tokens == 6


def test_kv_of_the_toy_depends_on_everything_before() -> None:
    world = World(page_size=4)
    one, two = world.admit("one", [1, 2, 3]), world.admit("two", [9, 2, 3])
    assert one is not None
    assert two is not None
    assert world.read(one)[-KV_BYTES:] != world.read(two)[-KV_BYTES:]


# Side by side.


@pytest.mark.parametrize("cache", ALL)
@pytest.mark.parametrize("windows", [(0,), (0, 8)])
def test_two_prompts_side_by_side_are_computed_once(cache: str, windows: tuple[int, ...]) -> None:
    world = World(page_size=4, cache=cache, windows=windows)
    prompt = tokens(1, 30)
    leader = world.admit("leader", prompt, compute=False)
    sibling = world.admit("sibling", [*prompt[:26], 7, 7, 7], compute=False)
    assert leader is not None
    assert sibling is not None
    gained = []
    for _ in range(4):
        world.compute(leader, most=8)
        gained.append(world.manager.catch_up(sibling))
        world.manager.check_integrity()
        assert world.wrong(sibling) == []
    assert gained == [8, 8, 8, 0]
    assert sibling.pages()[:6] == leader.pages()[:6]
    world.compute(sibling)
    assert world.wrong(sibling) == world.wrong(leader) == []
    usage = world.manager.usage(sibling)
    assert (usage.resident, usage.computed) == (24, 5)
    for sequence in (leader, sibling):
        world.manager.release(sequence)
    world.manager.reset()
    assert full(world).available == 40


def test_catching_up_drops_what_was_computed_meanwhile_only_for_more() -> None:
    world = World(page_size=4)
    prompt = tokens(1, 30)
    leader = world.admit("leader", prompt, compute=False)
    sibling = world.admit("sibling", prompt, compute=False)
    assert leader is not None
    assert sibling is not None
    world.compute(sibling, most=10)
    world.compute(leader, most=9)
    assert world.manager.catch_up(sibling) == 0
    world.compute(leader, most=7)
    assert world.manager.catch_up(sibling) == 6
    assert world.wrong(sibling) == []
    assert world.manager.usage(sibling).resident == 6
