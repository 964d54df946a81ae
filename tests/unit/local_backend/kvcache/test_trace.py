from __future__ import annotations

import json
import random
from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_backend.kvcache.costs import Cost, CostQueue, ReuseTimes
from local_backend.kvcache.evict import Entry
from local_backend.kvcache.trace import TraceResult, read_block_trace, replay_blocks

MOONCAKE = Path("data") / "traces" / "mooncake_conversation.jsonl"


def ideal(prompts: list[list[int]]) -> int:
    """Blocks of each prompt's longest prefix that was seen before."""
    seen: set[int] = set()
    hits = 0
    for prompt in prompts:
        for block in prompt:
            if block not in seen:
                break
            hits += 1
        seen.update(prompt)
    return hits


@pytest.mark.shared
def test_with_unlimited_memory_the_trace_hits_105710_of_288500(shared: Path) -> None:
    prompts = list(read_block_trace(shared / MOONCAKE))
    assert ideal(prompts) == 105_710
    assert replay_blocks(prompts, 200_000) == TraceResult(12_031, 288_500, 105_710, 0, 0)


@pytest.mark.shared
def test_learning_when_prompts_return_beats_lru_where_memory_is_short(shared: Path) -> None:
    prompts = list(read_block_trace(shared / MOONCAKE))
    lru, cost = (replay_blocks(prompts, 2_000, policy=policy) for policy in ("lru", "cost"))
    assert cost.hits > 1.2 * lru.hits
    assert lru.evicted == 288_500 - lru.hits - 2_000


@pytest.mark.parametrize("cache", ["radix", "hash"])
def test_small_traces_by_hand(cache: str) -> None:
    prompts = [[1, 2, 3], [1, 2, 4], [1, 2, 3], [5], [1, 2, 3]]
    assert replay_blocks(prompts, 9, cache=cache) == TraceResult(5, 13, 8, 0, 0)
    # Four blocks hold one prompt beside another's end; the last but one takes nothing away.
    assert replay_blocks(prompts, 4, cache=cache) == TraceResult(5, 13, 8, 1, 0)
    assert replay_blocks(prompts, 2, cache=cache).too_large == 4
    assert replay_blocks([[]], 2, cache=cache) == TraceResult(1, 0, 0, 0, 0)
    assert replay_blocks([[]], 2).hit_ratio == 0.0
    assert replay_blocks(prompts, 9).hit_ratio == 8 / 13


def test_a_line_without_blocks_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"hash_ids": [1]}) + "\n\n" + json.dumps({"other": 1}) + "\n")
    with pytest.raises(ValueError, match=r"line 3 of t\.jsonl has no list 'hash_ids'"):
        list(read_block_trace(path))


def loops(policy: str, pages: int) -> int:
    """Prompts that return after a fixed number of others: LRU drops each just before its turn."""
    rng = random.Random(1)
    prompts = [
        [*range(talk * 1000, talk * 1000 + 10), 10**6 + rng.randrange(10**6)]
        for _ in range(60)
        for talk in range(50)
    ]
    return replay_blocks(prompts, pages, policy=policy).hits


def test_what_returns_in_turn_is_partly_kept() -> None:
    assert loops("lru", 300) == 0
    assert loops("cost", 300) > 5_000


def test_without_shortage_both_orders_are_the_same() -> None:
    assert loops("lru", 4_000) == loops("cost", 4_000) == 59 * 50 * 10


def test_the_worth_of_waiting_grows_until_the_usual_time_and_falls_behind_it() -> None:
    times = ReuseTimes(period=1, enough=10)
    for _ in range(200):
        times.reused(100)
        times.used()
    early, late, over = times.at([1, 90, 400])
    assert early < late
    assert over < early
    assert over < 1e-3


def test_before_anything_is_known_age_decides() -> None:
    times = ReuseTimes()
    assert times.at([5, 6]) == [-5.0, -6.0]


def test_deep_pages_are_worth_more_where_depth_costs() -> None:
    """Of two chains asked for at the same times, the one with the dearer end stays."""
    kept = []
    for depth_pages in (0, 4):
        queue = CostQueue(Cost(depth_pages=depth_pages))
        for _ in range(300):
            queue.times.reused(50)
            queue.times.used()
        shallow, deep = Entry(9), Entry(7)  # the deep one was used a little earlier
        queue.push(shallow, 1, 1, 10)
        queue.push(deep, 40, 1, 10)
        kept.append(deep if queue.first(20) is shallow else shallow)
    assert kept[0] is not kept[1]


@given(st.lists(st.tuples(st.integers(0, 300_000), st.booleans()), min_size=1, max_size=60))
def test_the_worth_of_an_age_is_that_of_the_best_moment_to_stop_waiting(
    reuses: list[tuple[int, bool]],
) -> None:
    """Against all moments tried one by one, for ages that are looked up either way."""
    times = ReuseTimes(period=len(reuses), enough=0)
    bounds = sorted({0, *(int(2 ** (step / 3)) for step in range(60))})
    seen = [0] * len(bounds)
    for age, comes_back in reuses:
        if comes_back:
            times.reused(age)
            seen[bisect_right(bounds, age) - 1] += 1
        times.used()
    total = max(len(reuses), sum(seen))
    alive = [1 - sum(seen[:place]) / total for place in range(len(bounds))]
    asked = [0, 1, 7, 8191, 8192, 200_000, *(age for age, _ in reuses)]
    for age, worth in zip(asked, times.at(asked), strict=True):
        first = bisect_right(bounds, age) - 1
        hits = waited = best = 0.0
        for place in range(first, len(bounds) - 1):
            hits += seen[place] / total
            width = bounds[place + 1] - bounds[place]
            waited += width * (alive[place] + alive[place + 1]) / 2
            best = max(best, hits / waited) if waited > 1e-9 else best
        assert worth == pytest.approx(best, rel=1e-6, abs=1e-12)
        assert times.at([age]) == [worth]
