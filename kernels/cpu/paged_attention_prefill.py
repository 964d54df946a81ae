"""Attention that reads page tables in C; see ``native/attention.h``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.cpu import _native, _tensors
from local_backend.kernels.registry import Implementation

if TYPE_CHECKING:
    import torch


def supports(query: Any, key_pages: Any, value_pages: Any, tables: Any, *rest: Any) -> bool:
    """Whether all is float32 or bfloat16 on the CPU."""
    return (
        _tensors.kind_of(query) is not None
        and query.shape[2] <= _tensors.LARGEST_HEAD
        and _tensors.are_readable(query, key_pages, value_pages, tables)
        and _tensors.are_indices(rest[0])
    )


def paged_attention_prefill(
    query: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    page_tables: torch.Tensor,
    lengths: torch.Tensor,
    query_offsets: torch.Tensor,
    scale: float,
    causal: bool,
    window: int | None,
) -> torch.Tensor:
    """See the operation."""
    out = query.new_empty(query.shape)
    offsets = query_offsets.contiguous()
    token, head, _ = query.stride()
    pages, page_size, kv_heads, head_dim = key_pages.shape
    _native.native().call(
        "ck_attention",
        _native.AttentionArguments(
            *(query.data_ptr(), key_pages.data_ptr(), value_pages.data_ptr(), out.data_ptr()),
            *(page_tables.data_ptr(), lengths.data_ptr(), offsets.data_ptr(), token, head),
            *out.stride()[:2],
            *key_pages.stride()[:3],
            *value_pages.stride()[:3],
            *(page_tables.stride(0), lengths.shape[0], query.shape[1], kv_heads, head_dim),
            *(pages, page_size, page_tables.shape[1], window or 0, causal),
            *(_tensors.kind_of(query), scale),
        ),
    )
    return out


IMPLEMENTATION = Implementation(
    operation="paged_attention_prefill",
    backend="cpu",
    function=paged_attention_prefill,
    requires=("torch",),
    priority=40,
    supports=supports,
)
