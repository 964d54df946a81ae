"""Random mixes of requests against the model run whole, without any cache."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from local_backend.engine.api import (
    EngineStats,
    FinishReason,
    GenerationRequest,
    Sampling,
)
from local_backend.engine.config import EngineConfig
from local_backend.kernels.threads import native_status
from local_backend.kvcache.sequence import Container
from local_backend.layers.kernel_operators import KernelOperators
from local_backend.models.base import Model
from local_backend.models.tiny import tiny_decoder
from tests.unit.local_backend.engine.driving import check_answer, drive
from tests.unit.local_backend.models.running import draw
from tests.unit.local_backend.models.test_families import little_gemma


@dataclass(frozen=True)
class Arrival:
    """A request, the step at which it comes, and the step at which its user leaves."""

    request: GenerationRequest
    step: int
    leaves: int | None


@st.composite
def arrivals(draw_: st.DrawFn, below: int) -> list[Arrival]:
    """Requests over a few beginnings that they have in common."""
    stems = [draw(28, seed, below) for seed in range(3)]
    stems[1][:13] = stems[0][:13]
    found = []
    for number in range(draw_(st.integers(2, 8))):
        stem = draw_(st.sampled_from(stems))
        tokens = stem[: draw_(st.sampled_from([1, 8, 16, 19, 24, 28]))] + draw(
            draw_(st.integers(0, 9)), number, below
        )
        sampling = draw_(
            st.builds(
                Sampling,
                temperature=st.sampled_from([0.0, 0.0, 1.0]),
                top_k=st.sampled_from([None, 5]),
                top_p=st.sampled_from([1.0, 0.8]),
                seed=st.integers(0, 3),
            )
        )
        request = GenerationRequest(
            name=f"r{number}",
            tokens=tuple(tokens),
            max_tokens=draw_(st.sampled_from([0, 1, 3, 12, 20])),
            sampling=sampling,
            salt=draw_(st.sampled_from([None, None, "other"])),
            hit_limit=draw_(st.sampled_from([None, None, 0, 4, 11, 500])),
        )
        leaves = draw_(st.sampled_from([None, None, None, 0, 1, 3, 8]))
        found.append(Arrival(request, draw_(st.sampled_from([0, 0, 0, 1, 2, 5])), leaves))
    return found


def configs() -> st.SearchStrategy[EngineConfig]:
    return st.builds(
        EngineConfig,
        page_size=st.just(4),
        pages=st.sampled_from([10, 11, 12, 14, 17, 40]),
        step_tokens=st.integers(7, 40),
        alone_tokens=st.none() | st.integers(1, 60),
        max_running=st.integers(1, 6),
        cache=st.sampled_from(["radix", "radix", "hash", "naive"]),
        tails=st.booleans(),
        container=st.sampled_from([Container.DYNAMIC, Container.DYNAMIC, Container.STATIC]),
        share_in_flight=st.booleans(),
    )


def check_mix(model: Model, mix: list[Arrival], config: EngineConfig) -> tuple[EngineStats, int]:
    """Run a mix; what the engine counted, and how many prompt tokens were joined."""
    driver = drive(model, config)
    for step in range(14):
        for arrival in mix:
            if arrival.step == step:
                driver.engine.submit(arrival.request)
        driver.step()
        for arrival in mix:
            if arrival.leaves is not None and arrival.step + arrival.leaves == step:
                driver.engine.cancel(arrival.request.name)
                driver.check()
    answers = driver.finish()
    prompts = hits = computed = joined = 0
    for arrival in mix:
        request, answer = arrival.request, answers[arrival.request.name]
        reason = answer.finished.reason
        assert reason is not FinishReason.FAILED
        assert reason is not FinishReason.CANCELLED or arrival.leaves is not None
        check_answer(model, request, answer)
        if len(answer.events) == 1:
            continue
        usage = answer.started.usage
        assert usage.hit + usage.computed == usage.prompt == len(request.tokens)
        assert usage.joined + usage.restored <= usage.hit
        if request.hit_limit is not None:
            assert usage.hit <= request.hit_limit
        assert usage.computed > 0 or request.max_tokens == 0
        prompts, hits = prompts + usage.prompt, hits + usage.hit
        computed, joined = computed + usage.computed, joined + usage.joined
    stats = driver.engine.stats()
    assert (stats.prompt_tokens, stats.hit_tokens, stats.computed_tokens) == (
        prompts,
        hits,
        computed,
    )
    assert sum(stats.finished.values()) == len(mix)
    return stats, joined


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mix=arrivals(256), config=configs())
def test_any_mix_answers_as_the_model_alone(mix: list[Arrival], config: EngineConfig) -> None:
    check_mix(tiny_decoder(), mix, config)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mix=arrivals(50), config=configs())
def test_any_mix_with_windows_in_float64(mix: list[Arrival], config: EngineConfig) -> None:
    check_mix(little_gemma(), mix, config)


def crowd(seed: int, below: int) -> list[Arrival]:
    """Eight requests at nearly the same time, with long answers."""
    source = random.Random(seed)
    stems = [draw(24, 100 + seed, below), draw(24, 200 + seed, below)]
    found = []
    for number in range(8):
        tokens = source.choice(stems)[: source.choice([16, 24])]
        request = GenerationRequest(
            name=f"r{number}",
            tokens=tuple(tokens + draw(source.randrange(1, 8), number, below)),
            max_tokens=source.choice([8, 14, 20]),
            sampling=Sampling(temperature=source.choice([0.0, 1.0]), seed=number),
            hit_limit=source.choice([None, None, 8, 30]),
        )
        leaves = source.choice([None, None, None, None, 7])
        found.append(Arrival(request, source.choice([0, 0, 1]), leaves))
    return found


def crowded(name: str, seed: int) -> Model:
    if name == "gemma":
        return little_gemma()
    if name == "tiny":
        return tiny_decoder(seed)
    operators = KernelOperators()
    if not operators.is_exact:
        pytest.skip(f"the kernels are not compiled: {native_status()}")
    return tiny_decoder(seed, name, operators=operators)


@pytest.mark.parametrize("name", ["tiny", "gemma", "float32", "bfloat16"])
def test_a_crowd_in_a_pool_that_is_much_too_small(name: str) -> None:
    """Requests give way, are computed again, join one another: no token changes."""
    preempted = evicted = joined = recomputed = 0
    for seed in range(4):
        model = crowded(name, seed)
        config = EngineConfig(
            page_size=4, pages=14 + seed % 3, step_tokens=11, alone_tokens=None, max_running=6
        )
        stats, more = check_mix(model, crowd(seed, 50 if name == "gemma" else 256), config)
        preempted, evicted = preempted + stats.preempted, evicted + stats.evicted_pages
        joined, recomputed = joined + more, recomputed + stats.recomputed_tokens
    assert min(preempted, evicted, joined, recomputed) > 0
