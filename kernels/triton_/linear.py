"""Products by tiles of one size, whatever the number of rows: deterministic by construction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.ops._linear import finish
from local_backend.kernels.registry import Implementation
from local_backend.kernels.triton_ import _devices

if TYPE_CHECKING:
    import torch

    from local_backend.kernels.weights import Weight


def supports(x: Any, weight: Any, _residual: Any, _activation: Any) -> bool:
    """Whether the matrix is at hand where ``x`` is."""
    return weight.plain is not None and _devices.are_usable(x, weight.plain)


def linear(
    x: torch.Tensor, weight: Weight, residual: torch.Tensor | None, activation: str | None
) -> torch.Tensor:
    """See the operation."""
    from local_backend.kernels.triton_ import _rows

    return finish(_rows.multiply(x, weight.matrix()), residual, activation, x.dtype)


IMPLEMENTATION = Implementation(
    operation="linear",
    backend="triton",
    function=linear,
    requires=("torch", "triton"),
    priority=10,  # on a GPU the library's product is faster
    supports=supports,
)
