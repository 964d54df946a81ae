"""Blocks of query rows, each over all of its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.registry import Implementation
from local_backend.kernels.triton_ import _devices

if TYPE_CHECKING:
    import torch


def supports(query: Any, *rest: Any) -> bool:
    """Whether Triton can take the tensors."""
    return _devices.are_usable(query, *rest[:5])


def paged_attention_prefill(*arguments: Any) -> torch.Tensor:
    """See the operation."""
    from local_backend.kernels.triton_ import _attention

    found: torch.Tensor = _attention.attend(*arguments, rows=32, splits=1)
    return found


IMPLEMENTATION = Implementation(
    operation="paged_attention_prefill",
    backend="triton",
    function=paged_attention_prefill,
    requires=("torch", "triton"),
    priority=30,
    supports=supports,
)
