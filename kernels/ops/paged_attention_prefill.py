"""Attention of many new queries a sequence over keys and values in pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from local_backend.kernels.ops import _checks, _pages
from local_backend.kernels.registry import Operation, run
from local_backend.kernels.running import RunningSoftmax

if TYPE_CHECKING:
    import torch

NAME = "paged_attention_prefill"


def paged_attention_prefill(
    query: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    page_tables: torch.Tensor,
    lengths: torch.Tensor,
    query_offsets: torch.Tensor,
    *,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
) -> torch.Tensor:
    """Attend from the last tokens of each sequence to its keys, read through its page table.

    Args:
        query: [tokens, heads, head_dim], the sequences one behind the other.
        key_pages: [pages, page_size, kv_heads, head_dim]; head h reads key-value head
            h // (heads // kv_heads). The new tokens' own keys are in it already.
        value_pages: Like ``key_pages``.
        page_tables: int32 [batch, max_pages]; entry p of a row holds keys p * page_size and on.
            Entries behind the length, or wholly before the window of the first query, are not read.
        lengths: int32 [batch]; keys of each sequence, the new tokens included.
        query_offsets: int32 [batch + 1]; queries of sequence b are rows offsets[b] to offsets[b +
            1], and they are its last tokens.
        scale: Factor on scores; head_dim ** -0.5 where not given.
        causal: Whether a query sees only keys up to its own.
        window: Keys that a query sees at most, its own included; all where not given.

    Returns:
        [tokens, heads, head_dim], of the type of the query.

    Raises:
        ShapeError: An argument has the wrong shape or type.
        IndexRangeError: A page that would be read does not exist.
    """
    _checks.check_pages(key_pages, value_pages)
    _checks.check_query(query, key_pages)
    _checks.check_tables(page_tables, lengths, query_offsets.shape[0] - 1)
    _checks.need(_checks.are_int32(query_offsets), "query_offsets must be int32")
    _checks.check_window(window)
    if scale is None:
        scale = query.shape[2] ** -0.5
    _checks.need(scale > 0, f"the scale must be positive, not {scale}")
    found: torch.Tensor = run(
        NAME,
        *(query, key_pages, value_pages, page_tables, lengths, query_offsets),
        *(scale, causal, window),
    )
    return found


def reference(
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
    """Go through each sequence page by page; float64 stays, the rest is summed in float32."""
    import torch

    out = torch.zeros_like(query)
    dtype = torch.promote_types(query.dtype, torch.float32)
    page_size, kv_heads = key_pages.shape[1:3]
    group = query.shape[1] // max(1, kv_heads)
    bounds = query_offsets.tolist()
    for row, length in enumerate(lengths.tolist()):
        begin, end = bounds[row], bounds[row + 1]
        place = torch.arange(length - (end - begin), length, device=query.device)[:, None]
        first = 0 if window is None else max(0, length - (end - begin) - window + 1)
        # [heads, queries, head_dim]
        mine = query[begin:end].to(dtype).transpose(0, 1) * scale
        running = RunningSoftmax(
            (query.shape[1], end - begin), query.shape[2], dtype, str(query.device)
        )
        for start in range(first // page_size * page_size, length if end > begin else 0, page_size):
            low, high = max(start, first), min(start + page_size, length)
            page = int(page_tables[row, start // page_size])
            keys, values = (
                pages[page, low - start : high - start].to(dtype).transpose(0, 1)
                for pages in (key_pages, value_pages)
            )
            scores = mine @ keys.repeat_interleave(group, 0).transpose(1, 2)
            key = torch.arange(low, high, device=query.device)[None]
            hidden = torch.zeros((end - begin, high - low), dtype=torch.bool, device=query.device)
            if causal:
                hidden |= key > place
            if window is not None:
                hidden |= key <= place - window
            scores = scores.masked_fill(hidden, -torch.inf)
            running.add(scores, values.repeat_interleave(group, 0))
        out[begin:end] = running.result().transpose(0, 1).to(query.dtype)
    return out


def cases() -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Ragged batches of new and long histories, odd sizes, windows, empty; by full softmax."""
    for case in _pages.prefill_cases():
        yield case, _pages.full_softmax(*case)


OPERATION = Operation(
    name=NAME,
    contract=(
        "query [tokens, heads, head_dim]; key and value pages [pages, page_size, kv_heads, "
        "head_dim]; int32 "
        "page_tables [batch, max_pages], lengths [batch], query_offsets [batch + 1]; scale > 0; "
        "causal; window "
        "or None; gives [tokens, heads, head_dim]. Last dimension contiguous. float32, float16, "
        "bfloat16 "
        "(sums in float32) or float64."
    ),
    reference=reference,
    cases=cases,
    requires=("torch",),
    agrees=_checks.close,
)
