"""Gathers each sequence and hands it to torch: where there is no compiler, or another device."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from local_backend.kernels.registry import Implementation

if TYPE_CHECKING:
    import torch

_STRETCH = 512  # queries that share a mask


def supports(query: Any, *_: Any) -> bool:
    """Whether torch knows the type well; float64 is left to the reference."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(query, torch.Tensor):
        return False
    return query.dtype in (torch.float32, torch.float16, torch.bfloat16)


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
    import torch

    out = torch.zeros_like(query)
    page_size = key_pages.shape[1]
    bounds = query_offsets.tolist()
    for row, length in enumerate(lengths.tolist()):
        begin, end = bounds[row], bounds[row + 1]
        for start in range(begin, end if length else begin, _STRETCH):
            stop = min(start + _STRETCH, end)
            place = torch.arange(length - end + start, length - end + stop, device=query.device)
            low = 0 if window is None else max(0, length - end + start - window + 1)
            high = length - end + stop if causal else length
            first = low // page_size
            pages = page_tables[row, first : -(-high // page_size)].long()
            skipped, count = low - first * page_size, high - low
            keys, values = (
                tensor[pages].flatten(0, 1)[skipped : skipped + count].transpose(0, 1)[None]
                for tensor in (key_pages, value_pages)
            )
            key = torch.arange(low, high, device=query.device)[None]
            seen = torch.ones((stop - start, high - low), dtype=torch.bool, device=query.device)
            if causal:
                seen &= key <= place[:, None]
            if window is not None:
                seen &= key > place[:, None] - window
            found = torch.nn.functional.scaled_dot_product_attention(
                query[start:stop].transpose(0, 1)[None],
                *(keys, values),
                attn_mask=seen,
                scale=scale,
                enable_gqa=True,
            )
            out[start:stop] = found[0].transpose(0, 1)
    return out


IMPLEMENTATION = Implementation(
    operation="paged_attention_prefill",
    backend="torch",
    function=paged_attention_prefill,
    requires=("torch",),
    priority=20,
    supports=supports,
)
