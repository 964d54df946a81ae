from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_backend.errors import CacheIntegrityError, CacheStateError, UnsupportedSpecError
from local_backend.kvcache.coordinator import make_groups, plan_jointly
from local_backend.kvcache.events import EventKind
from local_backend.kvcache.keys import Namespace, TokenKey
from local_backend.kvcache.pages import NULL_PAGE
from local_backend.kvcache.specs import (
    FullKV,
    ImageKV,
    IndexKeys,
    LatentKV,
    Needs,
    RecurrentState,
    SharedKV,
    TokenHistory,
    WindowKV,
    group_layers,
    simple_group,
)
from local_backend.kvcache.windowed import WindowGroup
from tests.unit.local_backend.kvcache.world import World

SPACE = Namespace("world")


# Layers and what they keep.


@pytest.mark.parametrize(("heads", "gib"), [(32, 16.0), (8, 4.0), (1, 0.5)])
def test_bytes_of_mha_gqa_and_mqa(heads: int, gib: float) -> None:
    """B09: 32 layers, 32,768 tokens, 128 numbers of two bytes."""
    layers = [FullKV(kv_heads=heads, head_dim=128, dtype="bf16", element_bytes=2)] * 32
    (group,) = group_layers(layers, 16)
    assert group.page_bytes * (32_768 // 16) / 2**30 == gib


def test_layers_with_the_same_needs_share_a_table() -> None:
    full, local = FullKV(kv_heads=2, head_dim=8), WindowKV(kv_heads=1, head_dim=4, size=6)
    specs = [
        local,
        full,
        SharedKV(source=1),
        local,
        LatentKV(rank=5, rope_dim=3),
        TokenHistory(length=2),
    ]
    window, whole = group_layers(specs, 4)
    assert (window.name, window.layers, window.window) == ("window-6", (0, 3), 6)
    assert window.page_bytes == 2 * 4 * (2 * 1 * 4 * 4)
    assert (whole.name, whole.layers, whole.needs) == ("full", (1, 4), Needs.PREFIX)
    assert whole.page_bytes == 4 * (2 * (8 + 8) * 4 + 8 * 4)


def test_windows_of_two_sizes_are_two_groups() -> None:
    specs = [WindowKV(kv_heads=1, head_dim=4, size=size) for size in (8, 16, 8)]
    assert [group.layers for group in group_layers(specs, 4)] == [(0, 2), (1,)]


@pytest.mark.parametrize(
    ("spec", "token_bytes", "state_bytes"),
    [
        (FullKV(kv_heads=2, head_dim=8, value_dim=4), 2 * 12 * 4, 0),
        (IndexKeys(dim=16), 64, 0),
        (ImageKV(kv_heads=1, head_dim=4), 32, 0),
        (RecurrentState(elements=10), 0, 40),
        (SharedKV(source=0), 0, 0),
        (TokenHistory(length=3), 0, 0),
    ],
)
def test_bytes_of_each_kind(spec: FullKV, token_bytes: int, state_bytes: int) -> None:
    assert (spec.token_bytes, spec.state_bytes) == (token_bytes, state_bytes)


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([SharedKV(source=0)], "shares the state of layer 0, which keeps none"),
        ([FullKV(kv_heads=1, head_dim=1), SharedKV(source=7)], "layer 7"),
        ([TokenHistory(length=2)], "no layer keeps anything"),
    ],
)
def test_impossible_models_are_refused(specs: list[FullKV], message: str) -> None:
    with pytest.raises(UnsupportedSpecError, match=message):
        group_layers(specs, 4)


def test_recurrent_states_are_refused_and_never_cached_wrongly() -> None:
    specs = group_layers([FullKV(kv_heads=1, head_dim=4), RecurrentState(elements=4)], 4)
    assert [spec.needs for spec in specs] == [Needs.PREFIX, Needs.BOUNDARY]
    assert (specs[1].first_needed(16), specs[1].page_bytes) == (3, 16)
    with pytest.raises(UnsupportedSpecError, match="recurrent states"):
        make_groups(specs, {spec.name: 8 for spec in specs})


def test_page_sizes_must_be_equal() -> None:
    with pytest.raises(ValueError, match="same page size"):
        make_groups([simple_group(4, 1), simple_group(8, 1, name="b")], {"full": 1, "b": 1})


def test_another_layout_is_another_fingerprint() -> None:
    one = FullKV(kv_heads=2, head_dim=8)
    variants = [
        [one],
        [FullKV(kv_heads=2, head_dim=8, dtype="bf16", element_bytes=2)],
        [FullKV(kv_heads=4, head_dim=4)],
        [one, one],
    ]
    layouts = {group_layers(specs, 16)[0].layout for specs in variants}
    layouts.add(group_layers([one], 32)[0].layout)
    assert len(layouts) == 5


@given(st.integers(0, 80), st.integers(1, 20), st.integers(1, 8))
def test_a_window_needs_the_pages_that_the_next_position_sees(
    length: int, window: int, size: int
) -> None:
    spec = simple_group(size, 1, window=window)
    seen = [position for position in range(length) if length - position < window]
    first = seen[0] // size if seen else length // size
    assert spec.first_needed(length) == first


# What all groups can restore.


def allowed(world: World, tokens: list[int]) -> tuple[int, str, dict[str, int] | None]:
    joint = plan_jointly(world.groups, TokenKey(SPACE, tokens), len(tokens) - 1)
    return joint.length, joint.limited_by, joint.alone


def test_the_joint_hit_is_what_every_group_allows() -> None:
    """E10: a hybrid model, the same request again, others in between."""
    world = World(page_size=4, pages=30, windows=(0, 8))
    prompt = list(range(100, 140))
    world.manager.release(world.admit("one", prompt))
    assert allowed(world, [*prompt, 1]) == (40, "", {"full": 40, "window-8": 40})
    # Another request stops inside the prompt; others then need room in the window's memory.
    world.manager.release(world.admit("half", prompt[:21]))
    world.groups[1].evict(8)
    alone = {"full": 40, "window-8": 20}
    assert allowed(world, [*prompt, 1]) == (20, "window-8", alone)
    again = world.admit("two", [*prompt, 1])
    assert again is not None
    assert world.manager.usage(again).hit == 20
    assert world.manager.usage(again).limited_by == "window-8"
    assert world.wrong(again) == []


def test_other_requests_between_do_not_break_a_hybrid_hit() -> None:
    world = World(page_size=4, pages=40, windows=(0, 8))
    prompt = list(range(100, 124))
    world.manager.release(world.admit("one", prompt))
    for number in range(2):
        world.manager.release(world.admit(f"other{number}", [number] * 20))
    again = world.admit("two", prompt)
    assert again is not None
    assert world.manager.usage(again).hit == 20
    assert world.wrong(again) == []


def test_the_full_group_can_be_the_limit_too() -> None:
    world = World(page_size=4, pages=30, windows=(0, 8))
    prompt = list(range(100, 140))
    world.manager.release(world.admit("one", prompt))
    world.groups[0].evict(4)
    assert allowed(world, [*prompt, 1])[:2] == (24, "full")


def naive_hit(has: list[bool], window: int, size: int, limit: int) -> int:
    """The longest prefix whose window is there, tried from the longest down."""
    for pages in range(limit // size, 0, -1):
        first = max(0, pages * size - window + 1) // size
        if all(has[first:pages]):
            return pages * size
    return 0


@given(
    st.lists(st.booleans(), min_size=1, max_size=12),
    st.integers(2, 17),
    st.integers(1, 4),
    st.data(),
)
def test_a_window_is_found_wherever_its_pages_are(
    has: list[bool], window: int, size: int, data: st.DataObject
) -> None:
    (group,) = make_groups(
        [simple_group(size, 1, name="w", window=window)], {"w": 40}, cache="radix"
    )
    assert isinstance(group, WindowGroup)
    key = TokenKey(SPACE, range(len(has) * size))
    for index, (identity, is_there) in enumerate(zip(key.chain(size, 99), has, strict=True)):
        if is_there:
            page = group.pool.allocate(1)[0]
            own = key.data[index * size * 4 : (index + 1) * size * 4]
            group.adopt(identity, own, index, page, 1, 0)
    limit = data.draw(st.integers(0, len(key)))
    assert group.plan(key, limit).length == naive_hit(has, window, size, limit)


def test_pages_behind_the_window_are_given_back_while_running() -> None:
    world = World(page_size=4, pages=20, windows=(8,))
    sequence = world.admit("one", list(range(100, 140)))
    assert sequence is not None
    assert list(sequence.pages()[:8]) == [NULL_PAGE] * 8
    sizes = world.manager.sizes()["window-8"]
    assert (sizes.evictable, sizes.protected) == (8, 2)
    for token in range(20):
        world.manager.append(sequence, [token])
        world.compute(sequence)
        assert world.wrong(sequence) == []
    assert world.manager.sizes()["window-8"].protected <= 4
    world.manager.check_integrity()


def test_equal_identities_of_different_windows_do_not_mix() -> None:
    (group,) = make_groups([simple_group(4, 1, name="w", window=4)], {"w": 9})
    assert isinstance(group, WindowGroup)
    key, other = TokenKey(SPACE, [1, 2, 3, 4]), TokenKey(SPACE, [1, 2, 3, 5])
    group.adopt(other.chain(4, 1)[0], key.data, 0, group.pool.allocate(1)[0], 1, 0)
    assert group.plan(other, 4).length == 0


def test_a_group_forgets_only_what_is_idle() -> None:
    world = World(page_size=4, windows=(8,))
    sequence = world.admit("one", list(range(20)))
    assert sequence is not None
    with pytest.raises(CacheStateError, match="2 cached pages are in use"):
        world.groups[0].reset()
    world.manager.release(sequence)
    assert world.manager.reset() == 5


def test_wrong_books_of_a_window_are_found() -> None:
    world = World(page_size=4, windows=(8,))
    world.manager.release(world.admit("one", list(range(20))))
    group = world.groups[0]
    assert isinstance(group, WindowGroup)
    next(group.entries()).lock = 1
    with pytest.raises(CacheIntegrityError):
        world.manager.check_integrity()


def test_tables_of_another_kind_are_refused() -> None:
    world = World(page_size=4, windows=(0, 8))
    sequence = world.admit("one", list(range(20)))
    assert sequence is not None
    full, window = world.groups
    for group, table in ((full, sequence.tables[1]), (window, sequence.tables[0])):
        for call in (
            lambda g=group, t=table: g.commit(t, sequence.key, 20),
            lambda g=group, t=table: g.fork(t),
            lambda g=group, t=table: g.close(t),
            lambda g=group, t=table: g.offer(t, 0),
        ):
            with pytest.raises(TypeError, match="another group"):
                call()


def test_hits_of_hybrid_models_say_what_limits_them() -> None:
    world = World(page_size=4, pages=30, windows=(0, 8))
    told = []
    world.manager.events.listen(told.append)
    prompt = list(range(100, 140))
    world.manager.release(world.admit("one", prompt))
    world.groups[1].evict(9)
    world.manager.release(world.admit("two", [*prompt, 1]))
    last = [event for event in told if event.kind in (EventKind.HIT, EventKind.MISS)][-1]
    assert last.limited_by == "window-8"
