"""Gate of a feed-forward layer: activation of one half times the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from local_backend.kernels.ops import _checks
from local_backend.kernels.registry import Operation, run

if TYPE_CHECKING:
    import torch

NAME = "silu_mul"
ACTIVATIONS = ("silu", "gelu_tanh")


def silu_mul(gate_up: torch.Tensor, *, activation: str = "silu") -> torch.Tensor:
    """Apply the activation to the first half of each row and multiply with the second.

    Args:
        gate_up: [rows, 2 * width].
        activation: ``silu`` or ``gelu_tanh``.

    Returns:
        [rows, width].
    """
    _checks.need(
        gate_up.ndim == 2 and gate_up.shape[1] % 2 == 0,
        "gate_up is [rows, 2 * width], not ",
        gate_up=gate_up,
    )
    _checks.need(activation in ACTIVATIONS, f"no activation {activation!r}; {ACTIVATIONS}")
    found: torch.Tensor = run(NAME, gate_up, activation)
    return found


def reference(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """In float32 (float64 stays), rounded once."""
    import torch

    gate, up = gate_up.to(torch.promote_types(gate_up.dtype, torch.float32)).chunk(2, -1)
    functional = torch.nn.functional
    active = (
        functional.silu(gate) if activation == "silu" else functional.gelu(gate, approximate="tanh")
    )
    return (active * up).to(gate_up.dtype)


def cases() -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Odd widths, views, no rows, values where the exponential overflows."""
    import torch

    generator = torch.Generator().manual_seed(5)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        for activation in ACTIVATIONS:
            for rows, width in ((1, 1), (3, 17), (4, 64), (0, 8), (37, 33)):
                drawn = torch.randn((rows, 2 * width + 5), generator=generator) * 3
                gate_up = drawn.to(dtype)[:, : 2 * width]
                yield (gate_up, activation), reference(gate_up.double(), activation)
            far = torch.tensor([[-2000.0, -90.0, 90.0, 2000.0, 1.0, 1.0, 1.0, 1.0]]).to(dtype)
            yield (far, activation), reference(far.double(), activation)


OPERATION = Operation(
    name=NAME,
    contract="gate_up [rows, 2 * width], contiguous in width; activation; gives [rows, width].",
    reference=reference,
    cases=cases,
    requires=("torch",),
    agrees=_checks.close,
)
