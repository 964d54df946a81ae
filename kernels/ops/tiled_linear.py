"""Product with a weight whose rows do not depend on the rows beside them, to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_backend.kernels.ops import _checks, _linear
from local_backend.kernels.registry import Operation, run
from local_backend.kernels.weights import Weight

if TYPE_CHECKING:
    import torch

NAME = "tiled_linear"
TILE = 16


def tiled_linear(
    x: torch.Tensor,
    weight: Weight,
    *,
    residual: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """Multiply rows with a weight matrix, each row as if it were alone.

    Libraries choose their order of summation by the number of rows, so a row of a long prefill
    differs in its last bits from the same row after a cache hit. Here it does not: any rows, in any
    number and place, give the same bits, as long as implementation and processor are the same.

    Args:
        x: [rows, inputs].
        weight: From :func:`local_backend.kernels.weights.pack_weight`.
        residual: [rows, outputs], added before the one rounding.
        activation: ``silu`` or ``gelu_tanh`` where the weight is gated.

    Returns:
        [rows, outputs]; for a gated weight [rows, outputs / 2].
    """
    _linear.check(x, weight, residual, activation)
    found: torch.Tensor = run(NAME, x, weight, residual, activation)
    return found


def reference(
    x: torch.Tensor, weight: Weight, residual: torch.Tensor | None, activation: str | None
) -> torch.Tensor:
    """Products of exactly ``TILE`` rows each, zeros behind the last: the library sees one shape."""
    import torch

    dtype = torch.promote_types(x.dtype, torch.float32)
    matrix = weight.matrix().to(dtype).T.contiguous()
    product = x.new_empty((x.shape[0], weight.outputs), dtype=dtype)
    tile = x.new_zeros((TILE, x.shape[1]), dtype=dtype)
    for start in range(0, x.shape[0], TILE):
        rows = x[start : start + TILE]
        tile.zero_()
        tile[: len(rows)] = rows
        product[start : start + TILE] = (tile @ matrix)[: len(rows)]
    return _linear.finish(product, residual, activation, x.dtype)


OPERATION = Operation(
    name=NAME,
    contract=_linear.CONTRACT + "; a row of the output depends on its row of x alone, to the bit",
    reference=reference,
    cases=_linear.cases,
    requires=("torch",),
    agrees=_checks.close,
)
