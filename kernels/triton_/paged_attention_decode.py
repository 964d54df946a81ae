"""One query a sequence, the keys in splits of fixed size that run side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.registry import Implementation
from local_backend.kernels.triton_ import _devices

if TYPE_CHECKING:
    import torch


def supports(query: Any, *rest: Any) -> bool:
    """Whether Triton can take the tensors."""
    return _devices.are_usable(query, *rest[:4])


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

    from local_backend.kernels.triton_ import _attention

    offsets = torch.arange(query.shape[0] + 1, dtype=torch.int32, device=query.device)
    # The longest that the tables could hold: asking for the lengths would wait for the device.
    splits = max(1, -(-page_tables.shape[1] * key_pages.shape[1] // _attention.SPLIT))
    found: torch.Tensor = _attention.attend(
        *(query, key_pages, value_pages, page_tables, lengths, offsets, scale, True, window),
        rows=16,
        splits=splits,
    )
    return found


IMPLEMENTATION = Implementation(
    operation="paged_attention_decode",
    backend="triton",
    function=paged_attention_decode,
    requires=("torch", "triton"),
    priority=30,
    supports=supports,
)
