"""Products by torch, in the type of the weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.ops._linear import finish
from local_backend.kernels.registry import Implementation

if TYPE_CHECKING:
    import torch

    from local_backend.kernels.weights import Weight


def supports(_x: Any, weight: Any, _residual: Any, _activation: Any) -> bool:
    """Whether the matrix is at hand: it is not unpacked for every call."""
    return weight.plain is not None


def linear(
    x: torch.Tensor, weight: Weight, residual: torch.Tensor | None, activation: str | None
) -> torch.Tensor:
    """See the operation; the product is rounded before the residual is added."""
    import torch

    product = torch.nn.functional.linear(x, weight.matrix())
    return finish(product, residual, activation, x.dtype)


IMPLEMENTATION = Implementation(
    operation="linear",
    backend="torch",
    function=linear,
    requires=("torch",),
    priority=20,
    supports=supports,
)
