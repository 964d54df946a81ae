"""The product of ``linear``, which never looks at the number of rows."""

from __future__ import annotations

from local_backend.kernels.registry import Implementation
from local_backend.kernels.triton_.linear import linear, supports

IMPLEMENTATION = Implementation(
    operation="tiled_linear",
    backend="triton",
    function=linear,
    requires=("torch", "triton"),
    priority=30,
    supports=supports,
)
