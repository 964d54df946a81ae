"""One program a stretch of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.registry import Implementation
from local_backend.kernels.triton_ import _devices

if TYPE_CHECKING:
    import torch

_STRETCH = 1024


def supports(gate_up: Any, _activation: Any) -> bool:
    """Whether Triton can take the tensor."""
    return _devices.are_usable(gate_up)


def silu_mul(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """See the operation."""
    from local_backend.kernels.triton_ import _rows

    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty((rows, width))
    if out.numel():
        _rows.gate[(rows, -(-width // _STRETCH))](
            *(gate_up, out, gate_up.stride(0), out.stride(0), width),
            width=_STRETCH,
            is_silu=activation == "silu",
        )
    return out


IMPLEMENTATION = Implementation(
    operation="silu_mul",
    backend="triton",
    function=silu_mul,
    requires=("torch", "triton"),
    priority=30,
    supports=supports,
)
