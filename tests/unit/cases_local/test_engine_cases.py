"""Reports about local engines that are not told elsewhere, each under its number.

E01, E04, E05, E07, E10, E17, E19, E22, E24 and E32 have their tests beside the KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from local_backend.engine.api import Sampling  # noqa: E402
from local_backend.engine.build import build_engine  # noqa: E402
from local_backend.engine.config import EngineConfig  # noqa: E402
from local_backend.engine.exactness import try_exactness  # noqa: E402
from local_backend.errors import UnknownModelError, UnsupportedSpecError  # noqa: E402
from local_backend.kvcache.coordinator import make_groups  # noqa: E402
from local_backend.kvcache.offload import Offload  # noqa: E402
from local_backend.kvcache.specs import FullKV, RecurrentState, group_layers  # noqa: E402
from local_backend.kvcache.tiers.disk import DiskTier  # noqa: E402
from local_backend.kvcache.tiers.stack import TierStack  # noqa: E402
from local_backend.layers.kernel_operators import KernelOperators  # noqa: E402
from local_backend.layers.operators import ExactOperators, TorchOperators  # noqa: E402
from local_backend.models.base import Model  # noqa: E402
from local_backend.models.registry import load  # noqa: E402
from local_backend.models.tiny import tiny_decoder  # noqa: E402
from local_backend.server.frames import frame_of  # noqa: E402
from local_backend.server.render import Rendered, Renderer  # noqa: E402
from local_backend.server.request import parse_request  # noqa: E402
from local_backend.tokenizer.byte_level import ByteTokenizer  # noqa: E402
from local_backend.tokenizer.template import ChatTemplate  # noqa: E402
from tests.unit.local_backend.engine.driving import (  # noqa: E402
    TOKENIZER,
    Answer,
    Driver,
    ask,
    check_answer,
    drive,
    scores_without_cache,
)
from tests.unit.local_backend.models.running import Runner, draw  # noqa: E402
from tests.unit.local_backend.models.test_families import little_gemma  # noqa: E402

MODELS = {
    "full, float32": lambda: tiny_decoder(0, "float32"),
    "full, float64": lambda: tiny_decoder(0, "float64"),
    "full, bfloat16": lambda: tiny_decoder(0, "bfloat16"),
    "windows, float64": little_gemma,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cache", ["radix", "hash"])
@pytest.mark.parametrize("length", [15, 16, 33])
def test_e31_warm_answers_are_cold_answers(name: str, cache: str, length: int) -> None:
    """The same prompt cold, then warm, greedily and alone; at and beside ends of pages."""
    model = MODELS[name]()
    tokens = draw(length, length, 50)
    driver = drive(model, EngineConfig(pages=40, cache=cache))
    cold = driver.run(ask("cold", tokens, 6))["cold"]
    warm = driver.run(ask("warm", tokens, 6))["warm"]
    assert cold.started.usage.hit == 0
    assert warm.started.usage.hit >= (length - 1) // 16 * 16
    assert warm.started.usage.hit + warm.started.usage.computed == length
    assert warm.tokens == cold.tokens
    check_answer(model, ask("oracle", tokens, 6), warm)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_e13_equal_bits_need_a_fixed_order_of_sums(dtype: str) -> None:
    """Products whose order of sums follows the number of rows differ; fixed ones do not."""

    def differences(operators: Any) -> tuple[float, float]:
        """Between scores computed whole and behind a cached prefix, and their size."""
        model = tiny_decoder(0, dtype, operators=operators)
        tokens = draw(101, 3)
        whole = scores_without_cache(model, tokens)[-1]
        warm = Runner(model, 101).split(tokens, [100, 1])[-1]
        return float((whole - warm).abs().max()), float(whole.abs().max())

    assert differences(ExactOperators())[0] == 0.0
    kernels = KernelOperators()
    if kernels.is_exact:
        assert differences(kernels)[0] == 0.0
    difference, size = differences(TorchOperators())
    # A few units in the last place that the type has.
    assert difference <= 16 * size * torch.finfo(getattr(torch, dtype)).eps
    assert not TorchOperators().is_exact
    trials = try_exactness(little_gemma(TorchOperators()))
    assert not trials.is_exact
    assert "behind a cached prefix" in trials.describe()


def second_turn(model: Model, driver: Driver, cut: int) -> tuple[Answer, list[int]]:
    """A turn, then one that goes back to a place in it and goes on differently."""
    first = draw(60, 5, 50)
    said = driver.run(ask("first", first, 8))["first"].tokens
    second = [*first, *said][:cut] + draw(12, 6, 50)
    return driver.run(ask("second", second, 8))["second"], second


@pytest.mark.parametrize("cut", [20, 33, 60, 64, 67])
def test_e26_a_second_turn_goes_back_into_a_window(cut: int) -> None:
    """What a window has let go is computed again, counted, and named."""
    model = little_gemma()
    driver = drive(model, EngineConfig(page_size=4, pages={"window-12": 30, "full": 60}))
    answer, tokens = second_turn(model, driver, cut)
    usage = answer.started.usage
    assert usage.hit <= cut
    assert usage.hit + usage.computed == len(tokens)
    assert usage.hit >= (cut // 4 - 1) * 4 or usage.limited_by == "window-12"
    check_answer(model, ask("oracle", tokens, 8), answer)


def test_e26_a_window_without_its_pages_limits_the_hit() -> None:
    """Others took the window's pages: the full layers hold more than can be restored."""
    model = little_gemma()
    driver = drive(model, EngineConfig(page_size=4, pages={"window-12": 12, "full": 200}))
    tokens = draw(40, 7, 50)
    driver.run(ask("first", tokens, 2))
    driver.run(*(ask(f"other{n}", draw(30, 20 + n, 50), 2) for n in range(4)))
    again = driver.run(ask("again", tokens, 6))["again"]
    usage = again.started.usage
    assert (usage.limited_by, usage.hit + usage.computed) == ("window-12", 40)
    assert usage.hit < 36
    check_answer(model, ask("oracle", tokens, 6), again)


def test_e19_restored_after_a_restart_is_cold(tmp_path: Path) -> None:
    """38 prompts stored, the process ended, all read again: none answers differently."""

    def engine() -> Driver:
        offload = Offload(TierStack([DiskTier(tmp_path, 1 << 24)]))
        config = EngineConfig(pages=40)
        return Driver(build_engine(tiny_decoder(), TOKENIZER, config, offload=offload))

    requests = [
        ask(f"r{n}", draw(33 + n % 20, n), 4, sampling=Sampling(temperature=0.8, seed=n))
        for n in range(38)
    ]
    first = engine()
    cold = {r.name: first.run(r)[r.name] for r in requests}
    second = engine()
    warm = {r.name: second.run(r)[r.name] for r in requests}
    assert all(warm[r.name].started.usage.restored >= 32 for r in requests)
    assert [warm[r.name].tokens for r in requests] == [cold[r.name].tokens for r in requests]
    for request in requests[:8]:
        check_answer(tiny_decoder(), request, warm[request.name])


def test_e11_recurrent_layers_are_refused_and_not_cached_wrongly() -> None:
    """States that rejected drafts may have changed must not be found; here none is kept at all."""
    full = FullKV(kv_heads=1, head_dim=8, dtype="float32")
    specs = group_layers((full, RecurrentState(elements=16, dtype="float32")), 16)
    with pytest.raises(UnsupportedSpecError, match="recurrent states"):
        make_groups(specs, {spec.name: 4 for spec in specs})


def test_e15_types_below_bfloat16_are_refused() -> None:
    """A scale that reuse could miss does not exist: K and V have the type of the model."""
    with pytest.raises(UnknownModelError, match="no type 'float8_e4m3fn'"):
        load("tiny", "float8_e4m3fn")


# ── E29 ──────────────────────────────────────────────────────────────────────────────────────────

STEADY = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Marks of thinking stand before an answer that is to come, and before the last one, only.
DRIFTING = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}"
    "{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><think></think>{% endif %}"
)


class Bytes:
    """The byte tokenizer under another name, so that its template is asked."""

    def __init__(self) -> None:
        self._inner = ByteTokenizer()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def turns(source: str) -> tuple[Rendered, Rendered, list[int]]:
    """A first turn, a second that quotes its answer, and the first with its answer."""
    tokenizer: Any = Bytes()
    renderer = Renderer(tokenizer, frame_of(tokenizer, ChatTemplate(source, tokenizer)))

    def render(*contents: str) -> Rendered:
        messages = [
            {"role": "assistant" if n % 2 else "user", "content": c} for n, c in enumerate(contents)
        ]
        body = {"model": "m", "max_tokens": 1, "messages": messages}
        return renderer.render(parse_request(body), "id")

    first, second = render("question"), render("question", "answer", "more")
    return first, second, [*first.prompt.tokens, *tokenizer.encode("answer")]


def common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def test_e29_a_template_that_drifts_is_named() -> None:
    """The cache is found up to the earlier answer, and no client is blamed."""
    first, second, known = turns(DRIFTING)
    upto = common(known, second.prompt.tokens)
    # The user's turn and the token of the speaker; the answer itself is not found.
    assert upto == 1 + len("question") + 1
    assert (first.drifts, second.drifts) == (False, True)
    # What the rules keep ends with the user's turn, which is the same in both.
    assert first.prompt.blocks[0] == second.prompt.blocks[0]


def test_e29_a_steady_template_is_found_to_the_end() -> None:
    _, second, known = turns(STEADY)
    assert common(known, second.prompt.tokens) == len(known)
    assert not second.drifts
