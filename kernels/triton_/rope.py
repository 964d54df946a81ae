"""One program a head of a token. Positions are not checked: that would wait for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.registry import Implementation
from local_backend.kernels.triton_ import _devices

if TYPE_CHECKING:
    import torch


def supports(query: Any, key: Any, positions: Any, cosines: Any, sines: Any, _pairs: Any) -> bool:
    """Whether Triton can take the tensors."""
    return _devices.are_usable(query, key, positions, cosines, sines)


def rope(
    query: torch.Tensor,
    key: torch.Tensor,
    positions: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    is_interleaved: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See the operation."""
    from local_backend.kernels.triton_ import _rows

    half = cosines.shape[1]
    for x in (query, key):
        if x.numel():
            _rows.turn[x.shape[:2]](
                *(x, positions, cosines, sines, x.stride(0), x.stride(1), half),
                width=_rows.power(half),
                is_interleaved=is_interleaved,
            )
    return query, key


IMPLEMENTATION = Implementation(
    operation="rope",
    backend="triton",
    function=rope,
    requires=("torch", "triton"),
    priority=30,
    supports=supports,
)
