"""Product of rows with a packed weight, with what follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_backend.kernels.ops import _checks, _linear
from local_backend.kernels.registry import Operation, run
from local_backend.kernels.weights import Weight

if TYPE_CHECKING:
    import torch

NAME = "linear"


def linear(
    x: torch.Tensor,
    weight: Weight,
    *,
    residual: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """Multiply rows with a weight matrix.

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
    """One product in float32 (float64 stays)."""
    import torch

    dtype = torch.promote_types(x.dtype, torch.float32)
    product = x.to(dtype) @ weight.matrix().to(dtype).T
    return _linear.finish(product, residual, activation, x.dtype)


OPERATION = Operation(
    name=NAME,
    contract=_linear.CONTRACT,
    reference=reference,
    cases=_linear.cases,
    requires=("torch",),
    agrees=_checks.close,
)
