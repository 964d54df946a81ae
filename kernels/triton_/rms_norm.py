"""One program a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.registry import Implementation
from local_backend.kernels.triton_ import _devices

if TYPE_CHECKING:
    import torch


def supports(x: Any, weight: Any, _epsilon: Any, residual: Any, _offset: Any) -> bool:
    """Whether Triton can take the tensors."""
    return _devices.are_usable(x, weight, *(() if residual is None else (residual,)))


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    residual: torch.Tensor | None,
    offset: float,
) -> torch.Tensor:
    """See the operation."""
    from local_backend.kernels.triton_ import _rows

    out = x.new_empty(x.shape)
    if x.numel():
        kept = x if residual is None else residual
        _rows.norm[(x.shape[0],)](
            *(x, weight, kept, out, x.stride(0), kept.stride(0), out.stride(0), epsilon, offset),
            size=x.shape[1],
            width=_rows.power(x.shape[1]),
            has_residual=residual is not None,
        )
    return out


IMPLEMENTATION = Implementation(
    operation="rms_norm",
    backend="triton",
    function=rms_norm,
    requires=("torch", "triton"),
    priority=30,
    supports=supports,
)
