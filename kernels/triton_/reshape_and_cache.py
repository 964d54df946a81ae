"""One program a head of a token. Slots are not checked: that would wait for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_backend.kernels.registry import Implementation
from local_backend.kernels.triton_ import _devices

if TYPE_CHECKING:
    import torch


def supports(key: Any, value: Any, key_pages: Any, value_pages: Any, slots: Any) -> bool:
    """Whether Triton can take the tensors."""
    return _devices.are_usable(key, value, key_pages, value_pages, slots)


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    slots: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See the operation."""
    from local_backend.kernels.triton_ import _rows

    for x, pages in ((key, key_pages), (value, value_pages)):
        if x.numel():
            _rows.store[x.shape[:2]](
                *(x, pages, slots, x.stride(0), x.stride(1), *pages.stride()[:3]),
                *(pages.shape[1], x.shape[2]),
                width=_rows.power(x.shape[2]),
            )
    return key_pages, value_pages


IMPLEMENTATION = Implementation(
    operation="reshape_and_cache",
    backend="triton",
    function=reshape_and_cache,
    requires=("torch", "triton"),
    priority=30,
    supports=supports,
)
