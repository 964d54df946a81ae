"""The kernels as a model sees them, beside the plain operators."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from local_backend.layers.kernel_operators import KernelOperators  # noqa: E402
from local_backend.layers.operators import Operators, TorchOperators  # noqa: E402
from local_backend.models import gemma3  # noqa: E402
from local_backend.models.base import Model  # noqa: E402
from local_backend.models.tiny import tiny_decoder  # noqa: E402
from local_backend.models.weights import DrawnWeights  # noqa: E402
from tests.unit.local_backend.models.running import Runner, draw  # noqa: E402
from tests.unit.local_backend.models.test_families import GEMMA  # noqa: E402

# Largest difference from plain torch in float64, as a part of the largest score.
BOUNDS = {"float32": 1e-4, "float64": 1e-10, "bfloat16": 0.1}


def build(family: str, dtype: str, operators: Operators) -> Model:
    if family == "tiny":
        return tiny_decoder(0, dtype, operators=operators)
    weights = DrawnWeights(3, getattr(torch, dtype), "g")
    return gemma3.build(gemma3.read_config(GEMMA, dtype), weights, operators)


@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize("family", ["tiny", "gemma3"])
@pytest.mark.parametrize("exact", [True, False])
def test_kernels_compute_the_same(family: str, dtype: str, exact: bool) -> None:
    ids = draw(75, 1, 50)
    right = Runner(build(family, "float64", TorchOperators()), 75, page_size=8).split(ids, [75])
    model = build(family, dtype, KernelOperators(exact=exact))
    for sizes in ([75], [40, 1, 1, 33]):
        got = Runner(model, 75, page_size=8).split(ids, sizes)
        assert float((got - right).abs().max() / right.abs().max()) < BOUNDS[dtype]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["tiny", "gemma3"])
def test_compiled_kernels_give_the_same_bits(family: str, dtype: str) -> None:
    operators = KernelOperators()
    if not operators.is_exact:
        pytest.skip(f"the kernels are not compiled here: {operators.name}")
    model, ids = build(family, dtype, operators), draw(75, 2, 50)
    whole = Runner(model, 75, page_size=8).split(ids, [75])
    assert torch.equal(Runner(model, 75, page_size=8).split(ids, [40, 1, 1, 33]), whole)
    batch = Runner(model, 80, sequences=3, page_size=8)
    prompts = [ids[:30], ids[:1], ids[:74]]
    batch.run(*(batch.chunk(prompt, i) for i, prompt in enumerate(prompts)))
    got = batch.run(*(batch.chunk([ids[len(p)]], i) for i, p in enumerate(prompts)))
    assert torch.equal(got, whole[[30, 1, 74]])
