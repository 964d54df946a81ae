"""Root-mean-square normalisation, with the residual added first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from local_backend.kernels.ops import _checks
from local_backend.kernels.registry import Operation, run

if TYPE_CHECKING:
    import torch

NAME = "rms_norm"


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    *,
    residual: torch.Tensor | None = None,
    offset: float = 0.0,
) -> torch.Tensor:
    """Divide each row by its root mean square and multiply with the weight.

    Args:
        x: [rows, width].
        weight: [width], of the type of ``x``.
        epsilon: Added to the mean of squares.
        residual: [rows, width]; ``x`` is added to it in place, and the rounded sum is normalised.
        offset: Added to the weight; 1 in models that store it as a difference.

    Returns:
        [rows, width].
    """
    _checks.need(
        x.ndim == 2 and weight.shape == x.shape[1:] and weight.dtype == x.dtype,
        "x is [rows, width], its weight [width]: ",
        x=x,
        weight=weight,
    )
    if residual is not None:
        fits = residual.shape == x.shape and residual.dtype == x.dtype
        _checks.need(fits, "the residual must be like x: ", x=x, residual=residual)
    found: torch.Tensor = run(NAME, x, weight, epsilon, residual, offset)
    return found


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    residual: torch.Tensor | None,
    offset: float,
) -> torch.Tensor:
    """In float32 (float64 stays), rounded once."""
    import torch

    if residual is not None:
        residual += x
        x = residual
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    normal = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (normal * (weight.to(wide.dtype) + offset)).to(x.dtype)


def cases() -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Odd widths, views, no rows, rows of zeros."""
    import torch

    generator = torch.Generator().manual_seed(7)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        for rows, width in ((1, 1), (3, 7), (4, 64), (0, 8), (20, 576)):
            x = torch.randn((rows, width + 2), generator=generator).to(dtype)[:, :width]
            weight = torch.randn(width, generator=generator).to(dtype)
            right = reference(x.double(), weight.double(), 1e-5, None, 0.0)
            yield (x, weight, 1e-5, None, 0.0), right
            residual = torch.randn((rows, width), generator=generator).to(dtype)
            right = reference((x + residual).double(), weight.double(), 1e-6, None, 1.0)
            yield (x, weight, 1e-6, residual, 1.0), right
        zeros = torch.zeros((2, 5), dtype=dtype)
        yield (zeros, torch.ones(5, dtype=dtype), 1e-5, None, 0.0), zeros.double()


OPERATION = Operation(
    name=NAME,
    contract=(
        "x [rows, width], weight [width], residual [rows, width] or None (x is added to it in "
        "place), last dimensions "
        "contiguous; epsilon; offset of the weight; gives [rows, width]."
    ),
    reference=reference,
    cases=cases,
    requires=("torch",),
    agrees=_checks.close,
)
