"""The compiled product sums each row by itself, so it is the deterministic one too."""

from __future__ import annotations

from local_backend.kernels.cpu.linear import linear, supports
from local_backend.kernels.registry import Implementation

IMPLEMENTATION = Implementation(
    operation="tiled_linear",
    backend="cpu",
    function=linear,
    requires=("torch",),
    priority=40,
    supports=supports,
)
