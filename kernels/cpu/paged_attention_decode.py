"""One query a sequence: the same code, and the same bits, as for many."""

from __future__ import annotations

import functools
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
    offsets = _offsets(query.shape[0])
    return prefill.paged_attention_prefill(
        *(query, key_pages, value_pages, page_tables, lengths, offsets), scale, True, window
    )


@functools.lru_cache(maxsize=256)
def _offsets(batch: int) -> torch.Tensor:
    import torch

    return torch.arange(batch + 1, dtype=torch.int32)


IMPLEMENTATION = Implementation(
    operation="paged_attention_decode",
    backend="cpu",
    function=paged_attention_decode,
    requires=("torch",),
    priority=40,
    supports=supports,
)
