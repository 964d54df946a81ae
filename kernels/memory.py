"""Memory for what is read from front to back: weights and caches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from local_backend.kernels.cpu import _native

if TYPE_CHECKING:
    import torch

_LINE = 64
_LARGE = 2 << 20


def empty_pages(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a CPU tensor without content, in large pages of the system where it grants them.

    A decode step jumps between pages of the cache; with small pages of the system it spends part of
    its time on looking up where they are.

    Args:
        shape: For example [pages, 2, page_size, kv_heads, head_dim], keys and values together.
        dtype: Type of the elements.
    """
    found = aligned_bytes(math.prod(shape) * dtype.itemsize, alignment=_LARGE)
    _native.native().ask_for_large_pages(found.data_ptr(), found.numel())
    return found.view(dtype).view(shape)


def aligned_bytes(size: int, alignment: int = _LINE) -> torch.Tensor:
    """Return bytes without content that begin at a multiple of ``alignment``."""
    import torch

    room = torch.empty(size + alignment, dtype=torch.uint8)
    return room[-room.data_ptr() % alignment :][:size]
