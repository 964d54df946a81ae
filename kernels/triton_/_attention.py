# ruff: noqa: ANN001, ANN202 - the language of kernels has no annotations
# mypy: ignore-errors
"""Attention over pages in Triton: one kernel for rows of queries, one that merges splits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

SPLIT = 512  # keys of a split; fixed, so that a sequence is summed the same in every batch
_NOTHING = tl.constexpr(-1e30)


@triton.jit
def _attend(
    query,
    key,
    value,
    out,
    maxima,
    weights,
    tables,
    lengths,
    offsets,
    scale,
    query_token,
    query_head,
    key_page,
    key_token,
    key_head,
    value_page,
    value_token,
    value_head,
    out_split,
    out_token,
    out_head,
    table_row,
    window,
    group: tl.constexpr,
    page_size: tl.constexpr,
    dim: tl.constexpr,
    width: tl.constexpr,
    kv_heads: tl.constexpr,
    rows: tl.constexpr,
    keys: tl.constexpr,
    split_keys: tl.constexpr,
    causal: tl.constexpr,
    is_partial: tl.constexpr,
):
    sequence = tl.program_id(0)
    kv_head = tl.program_id(1) % kv_heads
    block = tl.program_id(1) // kv_heads
    split = tl.program_id(2)
    begin = tl.load(offsets + sequence)
    count = tl.load(offsets + sequence + 1) - begin
    if block * rows >= count * group:
        return
    length = tl.load(lengths + sequence)
    row = block * rows + tl.arange(0, rows)
    is_row = row < count * group
    token = row // group
    head = kv_head * group + row % group
    place = length - count + token
    d = tl.arange(0, width)
    is_dim = d < dim
    at = (begin + token) * query_token + head * query_head
    q = tl.load(query + at[:, None] + d[None, :], mask=is_row[:, None] & is_dim[None, :], other=0.0)
    low = tl.zeros([rows], tl.int32)
    if window > 0:
        low = tl.maximum(place - window + 1, 0)
    high = tl.zeros([rows], tl.int32) + length
    if causal:
        high = place + 1
    first = tl.maximum(tl.min(tl.where(is_row, low, length), 0) // keys * keys, split * split_keys)
    last = tl.minimum(tl.max(tl.where(is_row, high, 0), 0), (split + 1) * split_keys)
    least = tl.min(tl.where(is_row, low, length), 0)
    highest = tl.full([rows], _NOTHING, tl.float32)
    weight = tl.zeros([rows], tl.float32)
    total = tl.zeros([rows, width], tl.float32)
    for start in range(first, last, keys):
        k_at = start + tl.arange(0, keys)
        is_key = (k_at >= least) & (k_at < last)
        page = tl.load(tables + sequence * table_row + k_at // page_size, mask=is_key, other=0).to(
            tl.int64
        )
        slot = k_at % page_size
        inside = is_key[:, None] & is_dim[None, :]
        k_from = page * key_page + slot * key_token + kv_head * key_head
        v_from = page * value_page + slot * value_token + kv_head * value_head
        k = tl.load(key + k_from[:, None] + d[None, :], mask=inside, other=0.0)
        v = tl.load(value + v_from[:, None] + d[None, :], mask=inside, other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision="ieee").to(tl.float32) * scale
        seen = is_key[None, :] & (k_at[None, :] >= low[:, None]) & (k_at[None, :] < high[:, None])
        score = tl.where(seen, score, float("-inf"))
        top = tl.maximum(highest, tl.max(score, 1))
        keep = tl.exp2(highest - top)
        part = tl.exp2(score - top[:, None])
        weight = weight * keep + tl.sum(part, 1)
        total = total * keep[:, None] + tl.dot(part.to(v.dtype), v, input_precision="ieee").to(
            tl.float32
        )
        highest = top
    to = split * out_split + (begin + token) * out_token + head * out_head
    if is_partial:
        side = (split * out_split + (begin + token) * out_token + head * out_head) // dim
        tl.store(maxima + side, highest, mask=is_row)
        tl.store(weights + side, weight, mask=is_row)
    else:
        total = total / tl.where(weight > 0, weight, 1.0)[:, None]
    kept = is_row[:, None] & is_dim[None, :]
    tl.store(out + to[:, None] + d[None, :], total.to(out.dtype.element_ty), mask=kept)


@triton.jit
def _merge(
    parts, maxima, weights, out, splits, rows_in_all, dim: tl.constexpr, width: tl.constexpr
):
    row = tl.program_id(0)
    d = tl.arange(0, width)
    is_dim = d < dim
    highest = tl.load(maxima + row)
    weight = tl.load(weights + row)
    total = tl.load(parts + row * dim + d, mask=is_dim, other=0.0)
    for split in range(1, splits):
        at = split * rows_in_all + row
        other = tl.load(maxima + at)
        top = tl.maximum(highest, other)
        keep = tl.exp2(highest - top)
        take = tl.exp2(other - top)
        weight = weight * keep + tl.load(weights + at) * take
        total = total * keep + tl.load(parts + at * dim + d, mask=is_dim, other=0.0) * take
        highest = top
    total = total / tl.where(weight > 0, weight, 1.0)
    tl.store(out + row * dim + d, total.to(out.dtype.element_ty), mask=is_dim)


def attend(
    query: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    page_tables: torch.Tensor,
    lengths: torch.Tensor,
    query_offsets: torch.Tensor,
    scale: float,
    causal: bool,
    window: int | None,
    *,
    rows: int,
    splits: int,
) -> torch.Tensor:
    """Launch; with more than one split the partial sums are merged in the order of the splits."""
    tokens, heads, dim = query.shape
    _, page_size, kv_heads, _ = key_pages.shape
    group = heads // kv_heads
    out = torch.zeros((tokens, heads, dim), dtype=query.dtype, device=query.device)
    batch = lengths.shape[0]
    if not tokens or not batch:
        return out
    parts, maxima, weights = out, out, out
    if splits > 1:
        room = (splits, tokens, heads)
        parts = torch.zeros((*room, dim), dtype=torch.float32, device=query.device)
        maxima = torch.full(room, -1e30, dtype=torch.float32, device=query.device)
        weights = torch.zeros(room, dtype=torch.float32, device=query.device)
    width = max(16, triton.next_power_of_2(dim))
    blocks = triton.cdiv(tokens * group, rows)
    _attend[(batch, blocks * kv_heads, splits)](
        *(query, key_pages, value_pages, parts, maxima, weights, page_tables, lengths),
        *(query_offsets, scale * 1.4426950408889634),
        *query.stride()[:2],
        *key_pages.stride()[:3],
        *value_pages.stride()[:3],
        *(tokens * heads * dim, heads * dim, dim, page_tables.stride(0), window or 0),
        group=group,
        page_size=page_size,
        dim=dim,
        width=width,
        kv_heads=kv_heads,
        rows=rows,
        keys=32,
        split_keys=SPLIT if splits > 1 else 1 << 30,
        causal=causal,
        is_partial=splits > 1,
    )
    if splits > 1:
        rows_in_all = tokens * heads
        _merge[(rows_in_all,)](
            parts, maxima, weights, out, splits, rows_in_all, dim=dim, width=width
        )
    return out
