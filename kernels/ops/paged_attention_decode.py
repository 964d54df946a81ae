"""Attention of one new query a sequence over keys and values in pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from local_backend.kernels.ops import _checks, _pages
from local_backend.kernels.ops.paged_attention_prefill import reference as prefill_reference
from local_backend.kernels.registry import Operation, run

if TYPE_CHECKING:
    import torch

NAME = "paged_attention_decode"


def paged_attention_decode(
    query: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    page_tables: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """Attend from the last token of each sequence to its keys, read through its page table.

    The same as :func:`paged_attention_prefill` with one query a sequence; on the CPU to the bit.

    Args:
        query: [batch, heads, head_dim].
        key_pages: [pages, page_size, kv_heads, head_dim], the new tokens' keys included.
        value_pages: Like ``key_pages``.
        page_tables: int32 [batch, max_pages].
        lengths: int32 [batch]; keys of each sequence. One of length 0 gets zeros.
        scale: Factor on scores; head_dim ** -0.5 where not given.
        window: Keys that a query sees at most, its own included; all where not given.

    Returns:
        [batch, heads, head_dim], of the type of the query.

    Raises:
        ShapeError: An argument has the wrong shape or type.
        IndexRangeError: A page that would be read does not exist.
    """
    _checks.check_pages(key_pages, value_pages)
    _checks.check_query(query, key_pages)
    _checks.check_tables(page_tables, lengths, query.shape[0])
    _checks.check_window(window)
    if scale is None:
        scale = query.shape[2] ** -0.5
    _checks.need(scale > 0, f"the scale must be positive, not {scale}")
    found: torch.Tensor = run(
        NAME, query, key_pages, value_pages, page_tables, lengths, scale, window
    )
    return found


def reference(
    query: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    page_tables: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """One query a sequence of the reference for many."""
    import torch

    offsets = torch.arange(query.shape[0] + 1, dtype=torch.int32)
    return prefill_reference(
        *(query, key_pages, value_pages, page_tables, lengths, offsets), scale, True, window
    )


def cases() -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Batches of short and long histories, odd sizes, windows, empty; by full softmax."""
    import torch

    for query, keys, values, tables, lengths, scale, window in _pages.decode_cases():
        offsets = torch.arange(len(lengths) + 1, dtype=torch.int32)
        right = _pages.full_softmax(
            *(query, keys, values, tables, lengths, offsets), scale, True, window
        )
        yield (query, keys, values, tables, lengths, scale, window), right


OPERATION = Operation(
    name=NAME,
    contract=(
        "query [batch, heads, head_dim]; key and value pages [pages, page_size, kv_heads, "
        "head_dim]; int32 "
        "page_tables [batch, max_pages], lengths [batch]; scale > 0; window or None; gives "
        "[batch, heads, head_dim]. Last dimension contiguous."
    ),
    reference=reference,
    cases=cases,
    requires=("torch",),
    agrees=_checks.close,
)
