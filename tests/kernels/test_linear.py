"""Products: rows that depend on nothing but themselves, and packing that loses nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from local_backend.kernels import operations
from local_backend.kernels.errors import ShapeError
from local_backend.kernels.functional import linear, pack_weight, silu_mul, tiled_linear

TYPES = (torch.float32, torch.bfloat16)


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("inputs", "outputs"), [(576, 960), (1536, 576), (65, 33)])
def test_a_row_has_the_same_bits_in_every_company(
    mode: str, threads: Callable[[int], None], inputs: int, outputs: int, dtype: torch.dtype
) -> None:
    x, weight = draw(600, inputs, dtype=dtype), pack_weight(draw(outputs, inputs, dtype=dtype))
    threads(1)
    whole = tiled_linear(x, weight)
    threads(3)
    assert torch.equal(tiled_linear(x, weight), whole)
    for begin, end in ((0, 1), (599, 600), (5, 12), (17, 49), (100, 228), (3, 516)):
        assert torch.equal(tiled_linear(x[begin:end], weight), whole[begin:end])
    mixed = torch.randperm(600, generator=torch.Generator().manual_seed(1))[:77]
    assert torch.equal(tiled_linear(x[mixed], weight), whole[mixed])


@pytest.mark.parametrize("dtype", [*TYPES, torch.float64], ids=str)
@pytest.mark.parametrize("size", [256, 1024])
def test_rows_of_the_tiled_reference_do_not_depend_on_their_number(
    size: int, dtype: torch.dtype
) -> None:
    """What the deterministic mode rests on where nothing is compiled; asked of this torch anew."""
    reference = operations()["tiled_linear"].reference
    x, weight = draw(130, size, dtype=dtype), pack_weight(draw(size, size, dtype=dtype))
    whole = reference(x, weight, None, None)
    for begin, end in ((0, 1), (1, 2), (129, 130), (7, 39), (60, 124)):
        assert torch.equal(reference(x[begin:end], weight, None, None), whole[begin:end])


@given(
    outputs=st.integers(1, 70),
    inputs=st.integers(1, 70),
    dtype=st.sampled_from(TYPES),
    is_gated=st.booleans(),
)
def test_packing_loses_nothing(
    outputs: int, inputs: int, dtype: torch.dtype, is_gated: bool
) -> None:
    matrix = draw(2 * outputs if is_gated else outputs, inputs, dtype=dtype)
    assert torch.equal(pack_weight(matrix, is_gated=is_gated).matrix(), matrix)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gate_in_the_product_is_gate_after_the_product(
    mode: str, activation: str, dtype: torch.dtype
) -> None:
    x, matrix = draw(37, 64, dtype=dtype), draw(2 * 40, 64, dtype=dtype) / 8
    fused = linear(x, pack_weight(matrix, is_gated=True), activation=activation)
    apart = silu_mul(linear(x, pack_weight(matrix)), activation=activation)
    assert fused.shape == (37, 40)
    tolerance = 3e-2 if dtype is torch.bfloat16 else 1e-5
    assert torch.allclose(fused, apart, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_residual_is_added_before_the_one_rounding(mode: str, dtype: torch.dtype) -> None:
    """3 + 2^-9 is halfway for a bfloat16 near 3; rounding the product first would lose it."""
    x, weight = torch.tensor([[2.0**-9]], dtype=dtype), pack_weight(torch.ones(1, 1, dtype=dtype))
    got = linear(x, weight, residual=torch.tensor([[3.0]], dtype=dtype))
    assert got.item() == torch.tensor(3 + 2.0**-9).to(dtype).item()


def test_values_at_the_edges_pass_through(mode: str) -> None:
    inf = float("inf")
    x = torch.tensor([[1.0], [inf], [float("nan")], [-0.0]], dtype=torch.bfloat16)
    got = linear(x, pack_weight(torch.ones(1, 1, dtype=torch.bfloat16)))[:, 0].tolist()
    assert got[:2] == [1.0, inf]
    assert got[2] != got[2]
    assert got[3] == 0


def test_arguments_that_break_the_contract() -> None:
    weight, gated = pack_weight(draw(4, 3)), pack_weight(draw(4, 3), is_gated=True)
    with pytest.raises(ShapeError, match=r"x is \[rows, 3\]"):
        linear(draw(2, 4), weight)
    with pytest.raises(ShapeError, match=r"the weight torch\.float32"):
        linear(draw(2, 3, dtype=torch.bfloat16), weight)
    with pytest.raises(ShapeError, match="like the output"):
        linear(draw(2, 3), weight, residual=draw(2, 3))
    with pytest.raises(ShapeError, match="a gated weight needs one"):
        linear(draw(2, 3), gated)
    with pytest.raises(ShapeError, match="a gated weight needs one"):
        tiled_linear(draw(2, 3), weight, activation="silu")
    with pytest.raises(ShapeError, match="outputs even if gated"):
        pack_weight(draw(3, 3), is_gated=True)
