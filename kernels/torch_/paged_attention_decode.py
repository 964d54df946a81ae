"""Gathers each sequence and hands it to torch: where there is no compiler, or another device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_backend.kernels.registry import Implementation
from local_backend.kernels.torch_.paged_attention_prefill import paged_attention_prefill, supports

if TYPE_CHECKING:
    import torch


def paged_attention_decode(
    query: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    page_tables: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """See the operation."""
    import torch

    offsets = torch.arange(query.shape[0] + 1, dtype=torch.int32)
    return paged_attention_prefill(
        *(query, key_pages, value_pages, page_tables, lengths, offsets), scale, True, window
    )


IMPLEMENTATION = Implementation(
    operation="paged_attention_decode",
    backend="torch",
    function=paged_attention_decode,
    requires=("torch",),
    priority=20,
    supports=supports,
)
