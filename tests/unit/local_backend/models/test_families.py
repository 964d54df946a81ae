"""Families built from drawn weights: each detail that sets one apart, and files that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from local_backend.errors import WeightsError  # noqa: E402
from local_backend.kvcache.specs import FullKV, WindowKV, group_layers  # noqa: E402
from local_backend.layers.operators import ExactOperators, TorchOperators  # noqa: E402
from local_backend.models import gemma3, llama  # noqa: E402
from local_backend.models.base import Model  # noqa: E402
from local_backend.models.weights import DrawnWeights  # noqa: E402
from tests.unit.local_backend.models.running import Runner, draw  # noqa: E402

GEMMA = {
    "general.architecture": "gemma3",
    "gemma3.context_length": 512,
    "gemma3.embedding_length": 24,
    "gemma3.block_count": 7,
    "gemma3.feed_forward_length": 40,
    "gemma3.attention.head_count": 4,
    "gemma3.attention.head_count_kv": 1,
    "gemma3.attention.key_length": 8,
    "gemma3.attention.value_length": 8,
    "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
    "gemma3.attention.sliding_window": 12,
    "gemma3.rope.freq_base": 1_000_000.0,
    "tokenizer.ggml.tokens": ["x"] * 50,
}
LLAMA = {
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.block_count": 2,
    "llama.feed_forward_length": 40,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": 50,
}


def little_gemma(operators: Any = None) -> Model:
    config = gemma3.read_config(GEMMA, "float64")
    return gemma3.build(config, DrawnWeights(3, torch.float64, "g"), operators or ExactOperators())


def test_windows_stand_between_layers_that_see_all() -> None:
    model = little_gemma()
    kinds = [type(spec) for spec in model.specs]
    assert kinds == [WindowKV] * 5 + [FullKV, WindowKV]
    groups = group_layers(model.specs, 4)
    assert [(group.window, group.layers) for group in groups] == [
        (12, (0, 1, 2, 3, 4, 6)),
        (0, (5,)),
    ]


def test_chunks_with_windows_agree_to_the_bit() -> None:
    ids = draw(90, 1, 50)
    for operators in (ExactOperators(), TorchOperators()):
        model = little_gemma(operators)
        whole = Runner(model, 90, page_size=4).split(ids, [90])
        parts = Runner(model, 90, page_size=4).split(ids, [50, 1, 1, 30, 8])
        bound = 0 if operators.is_exact else 1e-12
        assert float((whole - parts).abs().max()) <= bound


def test_pages_behind_the_window_are_not_read() -> None:
    model, ids = little_gemma(), draw(60, 2, 50)
    right = Runner(model, 60, page_size=4).split(ids, [59, 1])[-1]
    runner = Runner(model, 60, page_size=4)
    runner.run(runner.chunk(ids[:59]))
    for pages in runner.memory.layers:
        pages.key[0] = pages.value[0] = torch.nan
    # The local layers' table: all that position 59 cannot see leads to the null page.
    local = runner.memory.layers[0].group
    first = (59 - 12 + 1) // 4
    runner.tables[0][local][:first] = [0] * first
    assert torch.equal(runner.run(runner.chunk(ids[59:]))[0], right)


def test_rows_of_rotated_pairs_come_back_in_order() -> None:
    heads, dim, width = 3, 8, 5
    plain = torch.arange(heads * dim * width).view(heads * dim, width)
    # How files are written: of each head, rows i and i + dim / 2 alternate.
    order = [h * dim + i + half for h in range(heads) for i in range(dim // 2) for half in (0, 4)]
    assert torch.equal(llama.unpermute(plain[order], heads), plain)


def test_a_head_of_its_own_is_used() -> None:
    class WithHead(DrawnWeights):
        def __contains__(self, name: str) -> bool:
            return True

    config, ids = llama.read_config(LLAMA, "float32"), draw(5, 1, 50)
    tied, own = (
        Runner(llama.build(config, kind(1, torch.float32, "l"), TorchOperators()), 5)
        for kind in (DrawnWeights, WithHead)
    )
    assert not torch.allclose(tied.split(ids, [5]), own.split(ids, [5]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"llama.block_count": None}, "block_count is None"),
        ({"llama.attention.head_count_kv": 3}, "cannot share 3"),
        ({"llama.rope.scaling.type": "yarn"}, "'yarn'"),
        ({"llama.attention.value_length": 4}, "different length"),
        ({"llama.rope.dimension_count": 4}, "in part"),
        ({"llama.attention.layer_norm_rms_epsilon": "x"}, "a positive number"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(change: dict[str, Any], message: str) -> None:
    metadata = {k: v for k, v in (LLAMA | change).items() if v is not None}
    with pytest.raises(WeightsError, match=message):
        llama.read_config(metadata, "float32")
