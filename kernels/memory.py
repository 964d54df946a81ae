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
    return _large_bytes(size).view(dtype).view(shape)


def _large_bytes(size: int) -> torch.Tensor:
    """Return fresh zeros that begin with a large page."""
    import torch

    room = mmap.mmap(-1, size + _LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)  # before the first use
    found = torch.frombuffer(room, dtype=torch.uint8)
    return found[-found.data_ptr() % _LARGE :][:size]


class Room:
    """Memory for many weights side by side, in large pages of the system.

    A matrix of a layer is often smaller than a large page. In memory of its own it would lie in
    small ones, which a decode step reads at half of the speed. The end of a block is never touched,
    so it takes no memory.

    Args:
        block: Bytes that are asked for at a time.
    """

    def __init__(self, block: int = 64 << 20) -> None:
        self._block = block
        self._left: torch.Tensor | None = None

    def take(self, size: int) -> torch.Tensor:
        """Return bytes that begin at a multiple of 64; they live on without the room."""
        if sys.platform == "win32":
            return aligned_bytes(size)
        padded = -(-size // _LINE) * _LINE
        left = self._left
        if left is None or left.numel() < padded:
            left = _large_bytes(max(self._block, padded))
        self._left = left[padded:]
        return left[:size]


def aligned_bytes(size: int, alignment: int = _LINE) -> torch.Tensor:
    """Return bytes without content that begin at a multiple of ``alignment``."""
    import torch

    room = torch.empty(size + alignment, dtype=torch.uint8)
    return room[-room.data_ptr() % alignment :][:size]
