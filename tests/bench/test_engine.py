"""The engine beside the bare model: what scheduling, paging, sampling and text cost.

Run by name (``pytest tests/bench/test_engine.py -s``); it prints figures and asserts no times. With
the weights of SmolLM2 installed it runs them in bfloat16, else the little decoder. Times are
processor time of one thread; engine and bare passes take turns, so that what else the machine does
meets both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from local_backend.engine.api import GenerationRequest, Sampling
from local_backend.engine.build import build_engine
from local_backend.engine.config import EngineConfig
from local_backend.engine.core import Engine
from local_backend.kernels.threads import native_status, set_threads
from local_backend.kernels.threads import threads as current_threads
from local_backend.kvcache.specs import group_layers
from local_backend.layers.context import Chunk, ForwardContext, Logits
from local_backend.layers.kernel_operators import KernelOperators
from local_backend.layers.memory import KVMemory
from local_backend.models import packages
from local_backend.models.base import Model
from local_backend.models.registry import Loaded, load

PAGE = 16
STEP = 512
CONTEXT = 2048


class Endless:
    """A tokenizer whose answers never end by themselves."""

    stops = frozenset[int]()

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads(), current_threads()
    torch.set_num_threads(1)
    set_threads(1)
    yield
    torch.set_num_threads(before[0])
    set_threads(before[1])


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    package = packages.PACKAGES[0]
    name = package.name if package.is_installed else "tiny"
    found = load(name, "bfloat16", operators=KernelOperators())
    print(f"\n{name}, bfloat16, {native_status()}")
    return found


def timed(job: Callable[[], object]) -> float:
    begun = time.thread_time()
    job()
    return time.thread_time() - begun


def ids(count: int, seed: int, below: int) -> tuple[int, ...]:
    source = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(below, (count,), generator=source).tolist())


def built(loaded: Loaded, requests: int, tokens: int, **more: Any) -> Engine:
    pages = (requests + 2) * (-(-tokens // PAGE) + 8)
    config = EngineConfig(pages=pages, step_tokens=STEP, alone_tokens=None, **more)
    return build_engine(loaded.model, Endless(loaded.tokenizer), config)  # type: ignore[arg-type]


class Bare:
    """Passes of the model over tables that were laid out beforehand."""

    def __init__(self, model: Model, sequences: int, tokens: int) -> None:
        self.model = model
        groups = group_layers(model.specs, PAGE)
        self.each = -(-tokens // PAGE)
        pages = {group.name: sequences * self.each for group in groups}
        self.memory = KVMemory(model.specs, groups, pages)
        for layer in self.memory.layers:  # what was never written may all be one page of zeros
            layer.key.normal_()
            layer.value.normal_()
        self.groups = len(groups)

    def chunk(self, sequence: int, tokens: tuple[int, ...], past: int, logits: Logits) -> Chunk:
        table = list(range(1 + sequence * self.each, 1 + (sequence + 1) * self.each))
        return Chunk(tokens, past, [table] * self.groups, logits)

    def prefill(self, tokens: tuple[int, ...], sequence: int = 0) -> list[ForwardContext]:
        ends = [*range(STEP, len(tokens), STEP), len(tokens)]
        starts = [0, *ends[:-1]]
        chunks = [
            self.chunk(sequence, tokens[a:b], a, Logits.LAST if b == len(tokens) else Logits.NONE)
            for a, b in zip(starts, ends, strict=True)
        ]
        return [ForwardContext.build([chunk], self.memory) for chunk in chunks]

    def run(self, contexts: list[ForwardContext]) -> None:
        for context in contexts:
            hidden = self.model.hidden(context)
            if len(context.wanted):
                self.model.logits(hidden[context.wanted])


def finish(engine: Engine) -> None:
    while engine.has_work:
        engine.step()


def start_all(engine: Engine, tokens: int) -> None:
    """Step until all prompts are complete, so that each step gives every answer a token."""
    while engine.stats().prompt_tokens < tokens:
        engine.step()
    engine.step()


@pytest.mark.parametrize("length", [512, 2048])
def test_prefill(loaded: Loaded, length: int) -> None:
    vocabulary = loaded.model.config.vocab_size
    engine, bare = built(loaded, 1, length), Bare(loaded.model, 1, length)
    tokens = ids(length, 1, vocabulary)
    contexts = bare.prefill(tokens)
    number = 0

    def through_engine() -> None:
        nonlocal number
        number += 1
        request = GenerationRequest(name="r", tokens=tokens, max_tokens=1, salt=str(number))
        engine.submit(request)
        finish(engine)

    through_engine()
    bare.run(contexts)
    rounds = [(timed(through_engine), timed(lambda: bare.run(contexts))) for _ in range(4)]
    mine, model = (min(times) for times in zip(*rounds, strict=True))
    print(
        f"prefill {length}: engine {length / mine:,.0f} tokens/s, bare model {length / model:,.0f},"
        f" ratio {model / mine:.3f}"
    )


def test_first_token_after_a_hit(loaded: Loaded) -> None:
    """4,096 tokens are found, 100 are new; the pass over these beside it."""
    vocabulary = loaded.model.config.vocab_size
    engine, bare = built(loaded, 4, 4196), Bare(loaded.model, 1, 4196)
    stem = ids(4096, 1, vocabulary)
    engine.submit(GenerationRequest(name="stem", tokens=stem, max_tokens=0))
    cold = timed(lambda: finish(engine))
    chunk = bare.chunk(0, ids(100, 2, vocabulary), 4096, Logits.LAST)
    context = ForwardContext.build([chunk], bare.memory)
    number = 0

    def through_engine() -> None:
        nonlocal number
        number += 1
        tokens = stem + ids(100, 100 + number, vocabulary)
        engine.submit(GenerationRequest(name="r", tokens=tokens, max_tokens=1))
        finish(engine)

    through_engine()
    loaded.model.forward(context)
    rounds = [
        (timed(through_engine), timed(lambda: loaded.model.forward(context))) for _ in range(6)
    ]
    mine, model = (min(times) for times in zip(*rounds, strict=True))
    print(
        f"first token after a hit of 4,096 and 100 new: engine {mine * 1e3:,.0f} ms, bare model"
        f" {model * 1e3:,.0f} ms, ratio {model / mine:.3f}; computing the 4,096: {cold:.2f} s"
    )


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_decode(loaded: Loaded, batch: int, temperature: float) -> None:
    vocabulary = loaded.model.config.vocab_size
    engine = built(loaded, batch, CONTEXT + 200)
    for number in range(batch):
        sampling = Sampling(temperature=temperature, seed=number)
        tokens = ids(CONTEXT, number, vocabulary)
        engine.submit(
            GenerationRequest(name=f"r{number}", tokens=tokens, max_tokens=200, sampling=sampling)
        )
    start_all(engine, batch * CONTEXT)
    bare = Bare(loaded.model, batch, CONTEXT + 1)
    chunks = [bare.chunk(number, (5,), CONTEXT, Logits.LAST) for number in range(batch)]
    context = ForwardContext.build(chunks, bare.memory)
    loaded.model.forward(context)
    rounds = [(timed(engine.step), timed(lambda: loaded.model.forward(context))) for _ in range(30)]
    mine, model = (min(times) for times in zip(*rounds, strict=True))
    print(
        f"decode, batch {batch}, temperature {temperature}: engine {batch / mine:,.1f} tokens/s,"
        f" bare model {batch / model:,.1f}, ratio {model / mine:.3f}"
    )


class Nothing:
    """A model whose passes cost nothing."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._scores = torch.zeros(64, model.config.vocab_size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def hidden(self, context: ForwardContext) -> None:
        pass

    def forward(self, context: ForwardContext) -> torch.Tensor:
        return self._scores[: len(context.wanted)]


@pytest.mark.parametrize(("batch", "context"), [(1, 2048), (8, 2048), (32, 2048)])
def test_step_alone(loaded: Loaded, batch: int, context: int) -> None:
    """What the engine adds to a pass in which every answer grows by a token."""
    empty = Loaded(Nothing(loaded.model), loaded.tokenizer, None)  # type: ignore[arg-type]
    engine = built(empty, batch, context + 400)
    for number in range(batch):
        tokens = ids(context, number, loaded.model.config.vocab_size)
        engine.submit(GenerationRequest(name=f"r{number}", tokens=tokens, max_tokens=400))
    start_all(engine, batch * context)
    times = sorted(timed(engine.step) for _ in range(100))
    print(f"one step without the model, batch {batch} at {context}: {times[50] * 1e6:,.0f} µs")


def test_submission(loaded: Loaded) -> None:
    """What a prompt of 8,000 tokens costs before anything is computed."""
    empty = Loaded(Nothing(loaded.model), loaded.tokenizer, None)  # type: ignore[arg-type]
    engine = built(empty, 4, 8000)
    tokens = ids(8000, 1, loaded.model.config.vocab_size)
    times = []
    for number in range(20):
        request = GenerationRequest(name="r", tokens=tokens, max_tokens=0, salt=str(number % 2))
        times.append(timed(lambda request=request: engine.submit(request)))  # type: ignore[misc]
        finish(engine)
    print(f"submitting 8,000 tokens: {min(times) * 1e6:,.0f} µs")
