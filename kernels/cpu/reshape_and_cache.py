"""Stores rows in pages in C; see ``native/fused.c``. Rows are bytes here: any type will do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.cpu import _native, _tensors
from local_backend.kernels.registry import Implementation

if TYPE_CHECKING:
    import torch


def supports(key: Any, value: Any, key_pages: Any, value_pages: Any, slots: Any) -> bool:
    """Whether all is on the CPU."""
    return _tensors.are_readable(key, value, key_pages, value_pages) and _tensors.are_indices(slots)


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    slots: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See the operation."""
    size = key.element_size()
    strides = (
        stride * size
        for tensor in (key, value, key_pages, value_pages)
        for stride in tensor.stride()[:-1]
    )
    tokens, heads, head_dim = key.shape
    _native.native().call(
        "ck_store",
        _native.StoreArguments(
            *(key.data_ptr(), value.data_ptr(), key_pages.data_ptr(), value_pages.data_ptr()),
            *(slots.data_ptr(), *strides, tokens, heads, head_dim * size, *key_pages.shape[:2], 0),
        ),
    )
    return key_pages, value_pages


IMPLEMENTATION = Implementation(
    operation="reshape_and_cache",
    backend="cpu",
    function=reshape_and_cache,
    requires=("torch",),
    priority=40,
    supports=supports,
)
