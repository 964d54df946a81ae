"""Puts the keys and values of new tokens into their pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from local_backend.kernels.ops import _checks
from local_backend.kernels.registry import Operation, run

if TYPE_CHECKING:
    import torch

NAME = "reshape_and_cache"


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Store each token's key and value at its slot.

    Args:
        key: [tokens, kv_heads, head_dim].
        value: Like ``key``.
        key_pages: [pages, page_size, kv_heads, head_dim], changed in place.
        value_pages: Like ``key_pages``.
        slots: int32 [tokens]: page * page_size + place in the page, each at most once; a negative
            one is skipped.

    Raises:
        ShapeError: An argument has the wrong shape or type.
        IndexRangeError: A slot does not exist; nothing was stored.
    """
    _checks.check_pages(key_pages, value_pages)
    fits = key.ndim == 3 and key.shape[1:] == key_pages.shape[2:] and len(slots) == key.shape[0]
    _checks.need(
        fits and key.shape == value.shape and key.dtype == value.dtype == key_pages.dtype,
        "keys and values are [tokens, kv_heads, head_dim] of the pages' type, each with a slot: ",
        key=key,
        value=value,
        pages=key_pages,
        slots=slots,
    )
    _checks.need(_checks.are_int32(slots), f"slots must be int32, not {slots.dtype}")
    run(NAME, key, value, key_pages, value_pages, slots)


def reference(
    key: torch.Tensor,
    value: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    slots: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Index by page and place."""
    used = slots >= 0
    at = slots[used].long()
    size = key_pages.shape[1]
    _checks.need_range(at, key_pages.shape[0] * size, "slot")
    key_pages[at // size, at % size] = key[used]
    value_pages[at // size, at % size] = value[used]
    return key_pages, value_pages


def cases() -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Shuffled slots, skipped tokens, views, no tokens, all slots; what is not stored stays NaN."""
    import torch

    generator = torch.Generator().manual_seed(11)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        for tokens, heads, head_dim, page_size, pages in (
            (1, 1, 1, 1, 1),
            (5, 3, 64, 16, 4),
            (0, 2, 8, 4, 3),
            (30, 2, 20, 7, 5),
            (35, 2, 20, 7, 5),
        ):
            both = torch.randn((tokens, 2 * heads, head_dim), generator=generator).to(dtype)
            key, value = both[:, :heads], both[:, heads:]
            slots = torch.randperm(pages * page_size, generator=generator)[:tokens].int()
            slots[1:2] = -1
            room = torch.full((pages, 2, page_size, heads, head_dim), torch.nan, dtype=dtype)
            right = room.clone()
            for token, slot in enumerate(slots.tolist()):
                if slot >= 0:
                    right[slot // page_size, 0, slot % page_size] = key[token]
                    right[slot // page_size, 1, slot % page_size] = value[token]
            yield (key, value, room[:, 0], room[:, 1], slots), (right[:, 0], right[:, 1])


OPERATION = Operation(
    name=NAME,
    contract=(
        "key and value [tokens, kv_heads, head_dim]; pages [pages, page_size, kv_heads, head_dim], "
        "changed in place; int32 "
        "slots [tokens], distinct, negative to skip. Last dimensions contiguous."
    ),
    reference=reference,
    cases=cases,
    requires=("torch",),
    agrees=_checks.close,
)
