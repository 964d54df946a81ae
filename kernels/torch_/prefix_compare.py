"""Compares two tensors where they lie; only the answer leaves the device."""

from __future__ import annotations

import sys
from typing import Any

from local_backend.kernels.registry import Implementation


def supports(a: Any, b: Any) -> bool:
    """Whether both are flat integer tensors on one device."""
    torch = sys.modules.get("torch")  # a tensor exists only where its module was imported
    if torch is None or not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return False
    whole = not any(t.is_floating_point() or t.is_complex() or t.ndim != 1 for t in (a, b))
    return whole and bool(a.device == b.device)


def prefix_compare(a: Any, b: Any) -> int:
    """Return the length of the common prefix."""
    end = min(a.shape[0], b.shape[0])
    if not end:
        return 0
    # argmax of a 0/1 tensor is the first difference, or 0 where there is none.
    differs = (a[:end] != b[:end]).int()
    first = int(differs.argmax())
    return end if first == 0 and not int(differs[0]) else first


IMPLEMENTATION = Implementation(
    operation="prefix_compare",
    backend="torch",
    function=prefix_compare,
    requires=("torch",),
    priority=20,
    supports=supports,
)
