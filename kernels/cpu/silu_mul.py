"""Gates in C; see ``native/fused.c``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.cpu import _native, _tensors
from local_backend.kernels.registry import Implementation

if TYPE_CHECKING:
    import torch

_KINDS = {"silu": 0, "gelu_tanh": 1}


def supports(gate_up: Any, _activation: Any) -> bool:
    """Whether it is float32 or bfloat16 on the CPU."""
    return _tensors.kind_of(gate_up) is not None and _tensors.are_readable(gate_up)


def silu_mul(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """See the operation."""
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty((rows, width))
    _native.native().call(
        "ck_gate",
        _native.GateArguments(
            *(gate_up.data_ptr(), out.data_ptr(), gate_up.stride(0), out.stride(0)),
            *(rows, width, _tensors.kind_of(gate_up), _KINDS[activation], 0),
        ),
    )
    return out


IMPLEMENTATION = Implementation(
    operation="silu_mul",
    backend="cpu",
    function=silu_mul,
    requires=("torch",),
    priority=40,
    supports=supports,
)
