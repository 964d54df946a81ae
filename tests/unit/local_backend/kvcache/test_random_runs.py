"""Long random runs: the indexes against the naive list, and every byte of KV against its tokens."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from local_backend.errors import CacheError, OutOfPagesError
from local_backend.kvcache.keys import Namespace
from local_backend.kvcache.offload import WriteMode
from local_backend.kvcache.pages import SizeInfo
from local_backend.kvcache.sequence import Container
from tests.unit.local_backend.kvcache.world import World

NUMBERS = st.integers(0, 100)
SPACES = (Namespace("world"), Namespace("world", salt="other"))


class Lockstep:
    """The same requests to several worlds, which must agree at every step."""

    def __init__(self, worlds: Sequence[World]) -> None:
        self.worlds = worlds
        self.names: list[str] = []
        self.serial = 0
        self.refused = 0
        self.hits = 0
        self.restored = 0
        self.copied = 0
        self.gained = 0
        self.has_snapshot = False

    def each(self, action: Callable[[World], object]) -> object:
        """Do it everywhere; results and errors must be the same."""
        outcomes: list[object] = []
        for world in self.worlds:
            try:
                outcomes.append(action(world))
            except CacheError as error:
                outcomes.append(error.error_code)
        assert all(outcome == outcomes[0] for outcome in outcomes), outcomes
        return outcomes[0]

    def live(self, world: World, name: str):
        return next(sequence for sequence in world.manager.live if sequence.name == name)

    def unfinished(self) -> list[str]:
        live = self.worlds[0].manager.live
        return [sequence.name for sequence in live if sequence.computed < sequence.prompt - 1]

    def admit(
        self, tokens: list[int], space: int, container: Container, reserve: int, later: bool = False
    ) -> None:
        self.serial += 1
        name = f"r{self.serial}"

        def action(world: World) -> tuple[int, int, int] | None:
            got = world.admit(
                name,
                tokens,
                namespace=SPACES[space],
                container=container,
                reserve=reserve,
                compute=not later,
            )
            if got is None:
                return None
            assert world.manager.usage(got).computed > 0
            return got.resident, got.restored, got.copied

        outcome = self.each(action)
        if isinstance(outcome, tuple):
            self.names.append(name)
            self.hits += outcome[0]
            self.restored += outcome[1]
            self.copied += outcome[2]
        else:
            self.refused += 1

    def progress(self, name: str, count: int) -> None:
        """Look for what others have computed meanwhile, then compute a chunk."""

        def action(world: World) -> int:
            sequence = self.live(world, name)
            gained = world.manager.catch_up(sequence)
            world.compute(sequence, most=count)
            return gained

        outcome = self.each(action)
        if isinstance(outcome, int):
            self.gained += outcome
        else:
            self.release(name)

    def append(self, name: str, tokens: list[int], commit: bool) -> None:
        def action(world: World) -> int:
            sequence = self.live(world, name)
            world.manager.append(sequence, tokens)
            world.compute(sequence, commit)
            return len(sequence)

        outcome = self.each(action)
        if outcome == OutOfPagesError.error_code:
            # Half of it may have happened (appended, no page for a copy): give it up everywhere.
            self.release(name)

    def truncate(self, name: str, count: int) -> None:
        self.each(
            lambda world: world.manager.truncate(
                self.live(world, name), len(self.live(world, name)) - count
            )
        )

    def fork(self, name: str) -> None:
        self.serial += 1
        twin = f"r{self.serial}"
        self.each(lambda world: world.manager.fork(self.live(world, name), twin).computed)
        self.names.append(twin)

    def release(self, name: str) -> None:
        self.names.remove(name)
        self.each(lambda world: world.manager.release(self.live(world, name)))

    def evict(self, count: int) -> None:
        self.each(lambda world: world.evict(count))

    def offload(self, count: int) -> None:
        def action(world: World) -> int:
            assert world.carrier is not None
            for _ in range(count):
                world.carrier.step()
            return world.manager.poll()

        self.each(action)

    def save(self) -> None:
        self.each(lambda world: world.save())
        self.has_snapshot = True

    def crash(self, warm: bool) -> None:
        self.names.clear()
        self.each(lambda world: world.crash())
        if warm and self.has_snapshot:
            self.each(lambda world: world.restore())

    def check(self) -> None:
        sizes: list[dict[str, SizeInfo]] = []
        for world in self.worlds:
            world.manager.check_integrity()
            world.manager.run_copies()
            sizes.append(world.manager.sizes())
            for sequence in world.manager.live:
                assert world.wrong(sequence) == []
        assert all(size == sizes[0] for size in sizes)


def run(steps: int, seed: int, worlds: Sequence[World]) -> Lockstep:
    """A seeded run. Prompts come from few families, so that they share beginnings."""
    rng = random.Random(seed)
    lockstep = Lockstep(worlds)

    def prompt() -> list[int]:
        family = random.Random(rng.randrange(6))
        tokens = [family.randrange(3) for _ in range(rng.randrange(1, 45))]
        for _ in range(rng.randrange(3)):
            tokens[rng.randrange(len(tokens)) :] = [rng.randrange(3)]
        return tokens

    for _ in range(steps):
        name = rng.choice(lockstep.names) if lockstep.names else ""
        draw = rng.random()
        if draw < 0.30 or not name:
            kind = rng.choice(list(Container))
            later = rng.random() < 0.5
            tokens = prompt()
            space = rng.randrange(20) == 0
            lockstep.admit(tokens, space, kind, rng.randrange(6), later)
            if later and rng.random() < 0.5:
                lockstep.admit([*tokens, rng.randrange(3)], space, kind, 0, True)
        elif draw < 0.40:
            lockstep.progress(rng.choice(lockstep.unfinished() or [name]), rng.randrange(1, 9))
        elif draw < 0.48:
            lockstep.append(name, [rng.randrange(3) for _ in range(rng.randrange(1, 6))], True)
        elif draw < 0.52:
            lockstep.append(name, [rng.randrange(3) for _ in range(2)], False)
            if name in lockstep.names:
                lockstep.truncate(name, rng.randrange(1, 3))
        elif draw < 0.60:
            lockstep.fork(name)
        elif draw < 0.84:
            lockstep.release(name)
        elif draw < 0.88:
            lockstep.evict(rng.randrange(1, 6))
        elif draw < 0.985 or lockstep.worlds[0].folder is None:
            if lockstep.worlds[0].carrier is not None:
                lockstep.offload(rng.randrange(1, 12))
        elif draw < 0.993:
            lockstep.save()
        else:
            lockstep.crash(rng.random() < 0.5)
        lockstep.check()
    while lockstep.names:
        lockstep.release(lockstep.names[0])
    for world in worlds:
        if world.carrier is not None:
            world.carrier.flush()
        world.manager.reset()
        world.manager.check_integrity()
        assert all(size.available == size.total for size in world.manager.sizes().values())
    return lockstep


def worlds(folder: Path, caches: Sequence[str], **options) -> list[World]:
    found = []
    for number, cache in enumerate(caches):
        own = folder / f"{number}-{cache}"
        own.mkdir()
        found.append(World(own, cache=cache, **options))
    return found


def test_ten_thousand_steps_agree_with_the_naive_list(tmp_path: Path) -> None:
    result = run(10_000, 1, worlds(tmp_path, ("radix", "hash", "naive")))
    assert result.hits > 10_000
    assert result.restored > 2_000
    assert result.refused > 100
    assert result.gained > 50


def test_pages_written_at_eviction(tmp_path: Path) -> None:
    result = run(1_500, 2, worlds(tmp_path, ("radix", "hash", "naive"), mode=WriteMode.BACK))
    assert result.restored > 500


def test_least_often_used_goes_first_everywhere(tmp_path: Path) -> None:
    result = run(1_000, 3, worlds(tmp_path, ("radix", "hash", "naive"), policy="lfu"))
    assert result.hits > 500


@pytest.mark.parametrize("mode", list(WriteMode))
def test_full_layers_beside_windows(tmp_path: Path, mode: WriteMode) -> None:
    both = worlds(tmp_path, ("radix", "hash", "naive"), windows=(0, 9), mode=mode)
    result = run(1_000, 4, both)
    assert result.hits > 300
    assert result.restored > 300


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_tails_and_pages_that_never_became_full_agree_with_the_naive_list(
    tmp_path: Path, policy: str
) -> None:
    both = worlds(tmp_path, ("radix", "naive"), tails=True, policy=policy, page_size=5)
    result = run(3_000, 6, both)
    assert result.copied > 500
    assert result.restored > 200
    assert result.refused > 10


@pytest.mark.parametrize("policy", ["lru", "lfu", "cost"])
def test_tails_of_pages_are_copied_right(tmp_path: Path, policy: str) -> None:
    result = run(2_000, 5, worlds(tmp_path, ("radix",), tails=True, policy=policy))
    assert result.copied > 200


class Machine(RuleBasedStateMachine):
    """The same operations as chosen by hypothesis, which looks for the shortest failing run."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        made = worlds(Path(self.folder.name), ("radix", "hash", "naive"), pages=16)
        self.run = Lockstep(made)

    def teardown(self) -> None:
        self.folder.cleanup()

    def name(self, number: int) -> str:
        return self.run.names[number % len(self.run.names)]

    @rule(
        tokens=st.lists(st.integers(0, 1), min_size=1, max_size=26),
        space=st.integers(0, 1),
        container=st.sampled_from(Container),
        reserve=st.integers(0, 5),
        later=st.booleans(),
    )
    def admit(
        self, tokens: list[int], space: int, container: Container, reserve: int, later: bool
    ) -> None:
        self.run.admit(tokens, space, container, reserve, later)

    @precondition(lambda self: self.run.names)
    @rule(number=NUMBERS, count=st.integers(1, 9))
    def progress(self, number: int, count: int) -> None:
        self.run.progress(self.name(number), count)

    @precondition(lambda self: self.run.names)
    @rule(number=NUMBERS, tokens=st.lists(st.integers(0, 1), min_size=1, max_size=6))
    def append(self, number: int, tokens: list[int]) -> None:
        self.run.append(self.name(number), tokens, True)

    @precondition(lambda self: self.run.names)
    @rule(number=NUMBERS, tokens=st.lists(st.integers(0, 1), min_size=3, max_size=4))
    def speculate(self, number: int, tokens: list[int]) -> None:
        name = self.name(number)
        self.run.append(name, tokens, False)
        if name in self.run.names:
            self.run.truncate(name, 2)

    @precondition(lambda self: self.run.names)
    @rule(number=NUMBERS)
    def fork(self, number: int) -> None:
        self.run.fork(self.name(number))

    @precondition(lambda self: self.run.names)
    @rule(number=NUMBERS)
    def release(self, number: int) -> None:
        self.run.release(self.name(number))

    @rule(count=st.integers(1, 6))
    def evict(self, count: int) -> None:
        self.run.evict(count)

    @rule(count=st.integers(1, 9))
    def offload(self, count: int) -> None:
        self.run.offload(count)

    @rule()
    def save(self) -> None:
        self.run.save()

    @rule(warm=st.booleans())
    def crash(self, warm: bool) -> None:
        self.run.crash(warm)

    @invariant()
    def holds(self) -> None:
        self.run.check()


def test_no_short_run_breaks_anything() -> None:
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=25, stateful_step_count=40, deadline=None)
    )
