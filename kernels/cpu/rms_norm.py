"""Normalisation in C, one pass over each row; see ``native/fused.c``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.cpu import _native, _tensors
from local_backend.kernels.registry import Implementation

if TYPE_CHECKING:
    import torch


def supports(x: Any, weight: Any, _epsilon: Any, residual: Any, _offset: Any) -> bool:
    """Whether all is float32 or bfloat16 on the CPU."""
    rows = (x, weight) if residual is None else (x, weight, residual)
    return _tensors.kind_of(x) is not None and _tensors.are_readable(*rows)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    residual: torch.Tensor | None,
    offset: float,
) -> torch.Tensor:
    """See the operation."""
    out = x.new_empty(x.shape)
    _native.native().call(
        "ck_rms_norm",
        _native.NormArguments(
            *(x.data_ptr(), weight.data_ptr(), None if residual is None else residual.data_ptr()),
            *(out.data_ptr(), x.stride(0), 0 if residual is None else residual.stride(0)),
            *(out.stride(0), *x.shape, _tensors.kind_of(x), epsilon, offset, 0),
        ),
    )
    return out


IMPLEMENTATION = Implementation(
    operation="rms_norm",
    backend="cpu",
    function=rms_norm,
    requires=("torch",),
    priority=40,
    supports=supports,
)
