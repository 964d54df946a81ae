"""Copies whole pages: what copy-on-write needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from local_backend.kernels.ops import _checks
from local_backend.kernels.registry import Operation, run

if TYPE_CHECKING:
    import torch

NAME = "copy_pages"


def copy_pages(key_pages: torch.Tensor, value_pages: torch.Tensor, pairs: torch.Tensor) -> None:
    """Copy keys and values of pages to other pages.

    Args:
        key_pages: [pages, page_size, kv_heads, head_dim], changed in place.
        value_pages: Like ``key_pages``.
        pairs: int32 [count, 2], on the CPU: from, to. Targets are distinct and no source is a
            target: the order of copies is free.

    Raises:
        ShapeError: An argument has the wrong shape or type, or a target is used twice or is a
            source.
        IndexRangeError: A page does not exist; nothing was copied.
    """
    _checks.check_pages(key_pages, value_pages)
    _checks.need(
        pairs.ndim == 2 and pairs.shape[1] == 2 and _checks.are_int32(pairs),
        f"pairs are int32 [count, 2], not {pairs.dtype} ",
        pairs=pairs,
    )
    sources, targets = ({*column.tolist()} for column in pairs.unbind(1))
    _checks.need(
        len(targets) == len(pairs) and sources.isdisjoint(targets),
        "a page is the target of one copy at most, and then of none the source",
    )
    run(NAME, key_pages, value_pages, pairs)


def reference(
    key_pages: torch.Tensor, value_pages: torch.Tensor, pairs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Index by page."""
    source, target = pairs.long().unbind(1)
    _checks.need_range(pairs, key_pages.shape[0], "page")
    for pages in (key_pages, value_pages):
        pages[target] = pages[source]
    return key_pages, value_pages


def cases() -> Iterator[tuple[tuple[Any, ...], Any]]:
    """One source for several targets, odd sizes, keys and values in one allocation, no pairs."""
    import torch

    generator = torch.Generator().manual_seed(13)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        for shape, pairs in (
            ((3, 16, 3, 64), [(0, 2)]),
            ((9, 5, 1, 7), [(1, 3), (1, 4), (8, 0)]),
            ((2, 1, 1, 1), []),
        ):
            room = torch.randn((shape[0], 2, *shape[1:]), generator=generator).to(dtype)
            right = room.clone()
            for source, target in pairs:
                right[target] = room[source]
            moved = torch.tensor(pairs, dtype=torch.int32).view(-1, 2)
            yield (room[:, 0], room[:, 1], moved), (right[:, 0], right[:, 1])


OPERATION = Operation(
    name=NAME,
    contract=(
        "pages [pages, page_size, kv_heads, head_dim], each page contiguous, changed in place; "
        "int32 pairs [count, 2] of "
        "source and target, targets distinct and no sources."
    ),
    reference=reference,
    cases=cases,
    requires=("torch",),
    agrees=_checks.close,
)
