"""Sizes of an engine, bad settings, and models whose bits depend on batching."""

from __future__ import annotations

import re
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from local_backend.engine.api import Sampling  # noqa: E402
from local_backend.engine.build import build_engine, count_pages  # noqa: E402
from local_backend.engine.config import EngineConfig  # noqa: E402
from local_backend.engine.exactness import try_exactness  # noqa: E402
from local_backend.errors import EngineConfigError, NotDeterministicError  # noqa: E402
from local_backend.kernels.threads import native_status  # noqa: E402
from local_backend.kvcache.specs import group_layers  # noqa: E402
from local_backend.layers.kernel_operators import KernelOperators  # noqa: E402
from local_backend.layers.operators import TorchOperators  # noqa: E402
from local_backend.models import packages  # noqa: E402
from local_backend.models.registry import load  # noqa: E402
from local_backend.models.tiny import tiny_decoder  # noqa: E402
from tests.unit.local_backend.engine.driving import (  # noqa: E402
    TOKENIZER,
    Driver,
    ask,
    check_answer,
    drive,
)
from tests.unit.local_backend.models.running import Runner, draw  # noqa: E402
from tests.unit.local_backend.models.test_families import little_gemma  # noqa: E402


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"page_size": 0}, "page_size must be at least 1"),
        ({"max_running": 0}, "max_running must be at least 1"),
        ({"max_waiting": -1}, "max_waiting must not be negative"),
        ({"context_length": 0}, "context_length must be at least 1"),
        ({"step_tokens": 64}, "step_tokens (64) must be more than max_running (64)"),
        ({"alone_tokens": 0}, "alone_tokens must be at least 1"),
        ({"pages": 4, "memory_bytes": 4096}, "give one of them"),
        ({"cache": "tree"}, "cache must be one of hash, naive, radix"),
        ({"policy": "fifo"}, "policy must be one of cost, lfu, lru"),
    ],
)
def test_bad_settings(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(EngineConfigError, match=re.escape(problem)):
        EngineConfig(**settings)


def test_pages_from_numbers_bytes_or_the_context() -> None:
    specs = group_layers(tiny_decoder().specs, 16)
    (spec,) = specs
    assert spec.page_bytes == 6144
    assert count_pages(specs, EngineConfig(pages=7), 100) == {"full": 7}
    assert count_pages(specs, EngineConfig(pages={"full": 9}), 100) == {"full": 9}
    assert count_pages(specs, EngineConfig(memory_bytes=100_000), 100) == {"full": 16}
    # Four contexts of 100 tokens, seven pages each; or a GiB.
    assert count_pages(specs, EngineConfig(), 100) == {"full": 28}
    assert count_pages(specs, EngineConfig(context_length=30), 100) == {"full": 8}
    assert count_pages(specs, EngineConfig(), 10**9) == {"full": 2**30 // 6144}
    two = group_layers(little_gemma().specs, 4)
    each = sum(spec.page_bytes for spec in two)
    assert count_pages(two, EngineConfig(memory_bytes=5 * each), 512) == {
        "window-12": 5,
        "full": 5,
    }
    with pytest.raises(EngineConfigError, match="no page"):
        count_pages(specs, EngineConfig(memory_bytes=100), 100)
    with pytest.raises(EngineConfigError, match=r"given for \['other'\]"):
        count_pages(specs, EngineConfig(pages={"other": 9}), 100)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_exact_operators_are_exact(dtype: str) -> None:
    found = try_exactness(tiny_decoder(0, dtype))
    assert found.is_exact
    assert [trial.difference for trial in found.trials] == [0.0] * 4
    assert found.describe() == "no difference found"


def test_compiled_kernels_are_exact() -> None:
    operators = KernelOperators()
    if not operators.is_exact:
        pytest.skip(f"the kernels are not compiled: {native_status()}")
    assert try_exactness(tiny_decoder(0, operators=operators)).is_exact
    model = tiny_decoder(0, "bfloat16", operators=operators)
    engine = build_engine(model, TOKENIZER, EngineConfig(pages=16, deterministic=True))
    assert engine.exactness.is_exact


def test_a_model_that_is_not_exact_is_refused_in_deterministic_mode() -> None:
    """Plain torch gives other bits for a suffix than for the whole, and says where."""
    model = little_gemma(TorchOperators())
    engine = build_engine(model, TOKENIZER, EngineConfig(pages=64))
    found = engine.exactness
    assert not found.is_exact
    assert all(trial.difference < 1e-10 for trial in found.trials)
    with pytest.raises(
        NotDeterministicError, match="torch depend on batching or caching"
    ) as caught:
        build_engine(model, TOKENIZER, EngineConfig(pages=64, deterministic=True))
    assert found.describe() in str(caught.value)
    assert "behind a cached prefix" in found.describe()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_warm_is_cold_to_the_bit(dtype: str) -> None:
    """Scores, not only tokens: of a cold prompt, a warm one, and one in the middle of a crowd."""
    rows: list[Any] = []

    class Watched:
        def __init__(self) -> None:
            self._model = tiny_decoder(0, dtype)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._model, name)

        def forward(self, context: Any) -> Any:
            scores = self._model.forward(context)
            rows.append((context.positions[context.wanted].tolist(), scores))
            return scores

    def scores_of(driver: Driver, name: str, tokens: list[int]) -> Any:
        rows.clear()
        driver.run(ask(name, tokens, 8, sampling=Sampling(temperature=1.0, seed=1)))
        return torch.stack([s[p.index(len(tokens) - 1 + i)] for i, (p, s) in enumerate(rows)])

    tokens = draw(101, 1)
    driver = Driver(build_engine(Watched(), TOKENIZER, EngineConfig(pages=64)))  # type: ignore[arg-type]
    cold = scores_of(driver, "cold", tokens)
    warm = scores_of(driver, "warm", tokens)
    assert driver.answers["warm"].started.usage.hit == 100
    assert torch.equal(cold, warm)
    whole = Runner(tiny_decoder(0, dtype), 108).split(
        tokens + driver.answers["cold"].tokens[:-1], [108]
    )
    assert torch.equal(cold, whole[100:])


def test_smollm2_through_the_engine() -> None:
    """Cold, warm and beside another one: what it answers without a cache."""
    package = packages.PACKAGES[0]
    if not package.is_installed:
        pytest.skip(f"the weights are not installed; run: {package.command}")
    operators = KernelOperators()
    if not operators.is_exact:
        pytest.skip(f"the kernels are not compiled: {native_status()}")
    loaded = load(package.name, operators=operators)
    assert loaded.template is not None
    ids = loaded.template.encode([{"role": "user", "content": "What is the capital of France?"}])
    other = loaded.template.encode([{"role": "user", "content": "Count to five."}])
    config = EngineConfig(pages=24, deterministic=True)
    driver = Driver(build_engine(loaded.model, loaded.tokenizer, config))
    cold = driver.run(ask("cold", ids, 12), ask("other", other, 12))["cold"]
    assert cold.text == "The capital of France is Paris."
    assert len(ids) == 37
    warm = driver.run(ask("warm", ids, 12))["warm"]
    # All but the last token, which has to be computed for its scores.
    assert (warm.started.usage.hit, warm.started.usage.computed) == (36, 1)
    assert warm.tokens == cold.tokens
    assert cold.tokens == Runner(loaded.model, 60).greedy(ids, 12, loaded.tokenizer.stops)


def test_numerics_and_weights_separate_caches() -> None:
    keys = {
        build_engine(model, TOKENIZER, EngineConfig(pages=4)).intake.key(ask("a", (1, 2))).root
        for model in (
            tiny_decoder(0),
            tiny_decoder(1),
            tiny_decoder(0, "float64"),
            tiny_decoder(0, operators=TorchOperators()),
        )
    }
    assert len(keys) == 4


def test_windows_and_full_layers_answer_as_the_model_alone() -> None:
    model = little_gemma()
    stem = draw(60, 1, 50)
    driver = drive(model, EngineConfig(page_size=4, pages=40))
    requests = [ask(f"r{i}", [*stem, i, 7], 10) for i in range(3)]
    answers = driver.run(*requests)
    for request in requests:
        check_answer(model, request, answers[request.name])
    assert answers["r1"].started.usage.joined == 60
