"""One query a sequence: the same code, and the same bits, as for many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.cpu import paged_attention_prefill as prefill
from local_backend.kernels.registry import Implementation

if TYPE_CHECKING:
    import torch


def supports(query: Any, key_pages: Any, value_pages: Any, tables: Any, *rest: Any) -> bool:
    """Whether all is float32 or bfloat16 on the CPU."""
    return prefill.supports(query, key_pages, value_pages, tables, *rest)


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
    return prefill.paged_attention_prefill(
        *(query, key_pages, value_pages, page_tables, lengths, offsets), scale, True, window
    )


IMPLEMENTATION = Implementation(
    operation="paged_attention_decode",
    backend="cpu",
    function=paged_attention_decode,
    requires=("torch",),
    priority=40,
    supports=supports,
)
