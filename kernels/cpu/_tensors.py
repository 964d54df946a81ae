"""Whether the compiled kernels can read tensors as they are."""

from __future__ import annotations

import sys
from typing import Any

from local_backend.kernels.cpu import _native

LARGEST_HEAD = 512


def kind_of(tensor: Any) -> int | None:
    """Number of the type, where the kernels compute in it."""
    torch = sys.modules.get("torch")  # a tensor exists only where its module was imported
    if torch is None or not isinstance(tensor, torch.Tensor):
        return None
    if tensor.dtype is torch.bfloat16:
        return _native.BFLOAT16
    return _native.FLOAT32 if tensor.dtype is torch.float32 else None


def are_readable(*tensors: Any) -> bool:
    """Whether all are on the CPU, with the elements of the last dimension side by side."""
    return _native.native().library is not None and all(
        tensor.is_cpu and (tensor.stride(-1) == 1 or tensor.shape[-1] <= 1) for tensor in tensors
    )


def are_indices(*tensors: Any) -> bool:
    """Whether all are contiguous on the CPU."""
    return all(tensor.is_cpu and tensor.is_contiguous() for tensor in tensors)
