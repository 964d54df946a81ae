"""Memory for what is read from front to back: weights and caches."""

from __future__ import annotations

import math
import mmap
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_LINE = 64
_LARGE = 2 << 20


def empty_pages(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a CPU tensor of zeros, in large pages of the system where it grants them.

    Fresh pages of the system are zeros already, so nothing is written and no memory is taken before
    a page is first used. A decode step jumps between pages of the cache; with small pages of the
    system it spends part of its time on looking up where they are.

    Args:
        shape: For example [pages, 2, page_size, kv_heads, head_dim], keys and values together.
        dtype: Type of the elements.
    """
    import torch

    size = math.prod(shape) * dtype.itemsize
    if sys.platform == "win32" or not size:
        return torch.zeros(shape, dtype=dtype)
    room = mmap.mmap(-1, size + _LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)  # before the first use
    found = torch.frombuffer(room, dtype=torch.uint8)
    return found[-found.data_ptr() % _LARGE :][:size].view(dtype).view(shape)


def aligned_bytes(size: int, alignment: int = _LINE) -> torch.Tensor:
    """Return bytes without content that begin at a multiple of ``alignment``."""
    import torch

    room = torch.empty(size + alignment, dtype=torch.uint8)
    return room[-room.data_ptr() % alignment :][:size]
