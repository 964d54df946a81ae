"""One program a stretch of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.registry import Implementation
from local_backend.kernels.triton_ import _devices

if TYPE_CHECKING:
    import torch

_STRETCH = 1024


def supports(key_pages: Any, value_pages: Any, _pairs: Any) -> bool:
    """Whether Triton can take the tensors; the pairs come along from the CPU."""
    return _devices.are_usable(key_pages, value_pages) and all(
        pages[:1].is_contiguous() for pages in (key_pages, value_pages)
    )


def copy_pages(
    key_pages: torch.Tensor, value_pages: torch.Tensor, pairs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See the operation."""
    from local_backend.kernels.ops._checks import need_range
    from local_backend.kernels.triton_ import _rows

    need_range(pairs, key_pages.shape[0], "page")
    moved = pairs.to(key_pages.device)
    for pages in (key_pages, value_pages):
        size = pages[:1].numel()
        if size and len(moved):
            _rows.copy[(len(moved), -(-size // _STRETCH))](
                *(pages, moved, pages.stride(0), size), width=_STRETCH
            )
    return key_pages, value_pages


IMPLEMENTATION = Implementation(
    operation="copy_pages",
    backend="triton",
    function=copy_pages,
    requires=("torch", "triton"),
    priority=30,
    supports=supports,
)
