"""Copies pages in C, several at once; see ``native/fused.c``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.cpu import _native, _tensors
from local_backend.kernels.registry import Implementation

if TYPE_CHECKING:
    import torch


def supports(key_pages: Any, value_pages: Any, pairs: Any) -> bool:
    """Whether each page is one stretch of memory on the CPU."""
    return (
        _tensors.are_readable(key_pages, value_pages)
        and _tensors.are_indices(pairs)
        and _is_whole(key_pages)
        and _is_whole(value_pages)
    )


def _is_whole(pages: torch.Tensor) -> bool:
    _, page_size, heads, head_dim = pages.shape
    return (
        pages.stride()[1:] == (heads * head_dim, head_dim, 1) or page_size * heads * head_dim == 1
    )


def copy_pages(
    key_pages: torch.Tensor, value_pages: torch.Tensor, pairs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See the operation."""
    size = key_pages.element_size()
    _native.native().call(
        "ck_copy_pages",
        _native.CopyArguments(
            *(key_pages.data_ptr(), value_pages.data_ptr(), pairs.data_ptr()),
            *(key_pages.stride(0) * size, value_pages.stride(0) * size),
            *(key_pages[:1].numel() * size, key_pages.shape[0], pairs.shape[0]),
        ),
    )
    return key_pages, value_pages


IMPLEMENTATION = Implementation(
    operation="copy_pages",
    backend="cpu",
    function=copy_pages,
    requires=("torch",),
    priority=40,
    supports=supports,
)
