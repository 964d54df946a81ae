"""What ``linear`` and ``tiled_linear`` share: contract, last step, cases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from local_backend.kernels.ops import _checks
from local_backend.kernels.ops.silu_mul import reference as gate
from local_backend.kernels.weights import Weight, pack_weight

if TYPE_CHECKING:
    import torch

CONTRACT = (
    "x [rows, inputs], last dimension contiguous; a Weight [outputs, inputs] of the same type; "
    "residual "
    "[rows, outputs] or None; activation silu, gelu_tanh or None, for gated weights only and "
    "without residual; "
    "gives [rows, outputs], half of that for gated weights with activation"
)


def check(
    x: torch.Tensor, weight: Weight, residual: torch.Tensor | None, activation: str | None
) -> None:
    """Check the arguments of both operations."""
    _checks.need(
        x.ndim == 2 and x.shape[1] == weight.inputs,
        f"x is [rows, {weight.inputs}], not ",
        x=x,
    )
    _checks.need(x.dtype == weight.dtype, f"x is {x.dtype}, the weight {weight.dtype}")
    if residual is not None:
        right = residual.shape == (x.shape[0], weight.outputs) and residual.dtype == x.dtype
        _checks.need(right, "the residual must be like the output: ", residual=residual)
    _checks.need(
        (activation is not None) == weight.is_gated,
        "an activation is for a gated weight, and a gated weight needs one",
    )
    _checks.need(activation is None or residual is None, "a gated layer takes no residual")


def finish(
    product: torch.Tensor, residual: torch.Tensor | None, activation: str | None, dtype: torch.dtype
) -> torch.Tensor:
    """Add the residual or apply the gate, in the type of the sums, and round once."""
    if activation is not None:
        product = gate(product, activation)
    if residual is not None:
        product = product + residual
    return product.to(dtype)


def cases() -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Odd sizes, one row, no rows, views; residual and gates; right answers in float64."""
    import torch

    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    sizes = [
        (1, 32, 32),
        (3, 5, 7),
        (16, 64, 48),
        (33, 33, 65),
        (40, 96, 64),
        (0, 32, 32),
        (2, 1, 1),
    ]
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        for rows, inputs, outputs in sizes:
            x = draw(rows, inputs + 3).to(dtype)[:, :inputs]
            matrix = (draw(outputs, inputs) * inputs**-0.5).to(dtype)
            right = x.double() @ matrix.double().T
            yield (x, pack_weight(matrix), None, None), right
            residual = draw(rows, outputs).to(dtype)
            yield (x, pack_weight(matrix), residual, None), right + residual.double()
        for rows, half, activation in ((5, 16, "silu"), (1, 40, "gelu_tanh"), (19, 7, "silu")):
            x = draw(rows, 24).to(dtype)
            matrix = (draw(2 * half, 24) * 24**-0.5).to(dtype)
            right = gate(x.double() @ matrix.double().T, activation)
            yield (x, pack_weight(matrix, is_gated=True), None, activation), right
