"""Products with packed weights in C; see ``native/linear.c``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.cpu import _native, _tensors
from local_backend.kernels.registry import Implementation

if TYPE_CHECKING:
    import torch

    from local_backend.kernels.weights import Weight

_PLAIN, _RESIDUAL = 0, 1
_GATES = {"silu": 2, "gelu_tanh": 3}


def supports(x: Any, weight: Any, residual: Any, _activation: Any) -> bool:
    """Whether the weight is packed and the rows can be read."""
    rows = (x,) if residual is None else (x, residual)
    return (
        weight.packed is not None
        and _tensors.kind_of(x) is not None
        and _tensors.are_readable(*rows)
    )


def linear(
    x: torch.Tensor, weight: Weight, residual: torch.Tensor | None, activation: str | None
) -> torch.Tensor:
    """See the operation; a row depends on nothing but itself."""
    gated = activation is not None
    out = x.new_empty((x.shape[0], weight.outputs // 2 if gated else weight.outputs))
    end = (
        _GATES[activation] if activation is not None else _PLAIN if residual is None else _RESIDUAL
    )
    if weight.packed is not None:
        _native.native().call(
            "ck_linear",
            _native.LinearArguments(
                *(x.data_ptr(), weight.packed.data_ptr()),
                *(None if residual is None else residual.data_ptr(), out.data_ptr(), x.stride(0)),
                *(0 if residual is None else residual.stride(0), out.stride(0), x.shape[0]),
                *(weight.outputs, weight.inputs, _tensors.kind_of(x), end),
            ),
        )
    return out


IMPLEMENTATION = Implementation(
    operation="linear",
    backend="cpu",
    function=linear,
    requires=("torch",),
    priority=40,
    supports=supports,
)
