"""Rotation in C, in place; see ``native/fused.c``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.cpu import _native, _tensors
from local_backend.kernels.registry import Implementation

if TYPE_CHECKING:
    import torch


def supports(query: Any, key: Any, positions: Any, cosines: Any, sines: Any, _pairs: Any) -> bool:
    """Whether all is float32 or bfloat16 on the CPU."""
    return (
        _tensors.kind_of(query) is not None
        and _tensors.kind_of(key) is not None
        and _tensors.are_readable(query, key)
        and _tensors.are_indices(positions, cosines, sines)
    )


def rope(
    query: torch.Tensor,
    key: torch.Tensor,
    positions: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    is_interleaved: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See the operation."""
    places, half = cosines.shape
    for x in (query, key):
        token, head, _ = x.stride()
        _native.native().call(
            "ck_rope",
            _native.RopeArguments(
                *(x.data_ptr(), positions.data_ptr(), cosines.data_ptr(), sines.data_ptr()),
                *(token, head, x.shape[0], x.shape[1], 2 * half, places),
                *(_tensors.kind_of(x), is_interleaved, 0),
            ),
        )
    return query, key


IMPLEMENTATION = Implementation(
    operation="rope",
    backend="cpu",
    function=rope,
    requires=("torch",),
    priority=40,
    supports=supports,
)
