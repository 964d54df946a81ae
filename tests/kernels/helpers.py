"""Paged sequences for tests: one pool of pages, any part of any sequence as a call."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from local_backend.kernels.functional import paged_attention_decode, paged_attention_prefill
from local_backend.kernels.ops._pages import paged


@dataclass(frozen=True)
class Pool:
    """Some sequences whose queries, keys and values are all known."""

    queries: tuple[Any, ...]
    keys: Any
    values: Any
    tables: Any
    lengths: tuple[int, ...]

    def attend(self, parts: Sequence[tuple[int, int, int]], **options: Any) -> list[Any]:
        """Prefill for (sequence, from, to) in one call; the outputs part by part."""
        tables = self.tables[[sequence for sequence, _, _ in parts]]
        lengths = torch.tensor([end for _, _, end in parts], dtype=torch.int32)
        counts = [end - begin for _, begin, end in parts]
        offsets = torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32)
        query = torch.cat([self.queries[row][begin:end] for row, begin, end in parts])
        out = paged_attention_prefill(
            query, self.keys, self.values, tables, lengths, offsets, **options
        )
        return list(out.split(counts))

    def decode(self, parts: Sequence[tuple[int, int]], **options: Any) -> Any:
        """Decode the token at (sequence, place) of several sequences in one call."""
        tables = self.tables[[sequence for sequence, _ in parts]]
        lengths = torch.tensor([place + 1 for _, place in parts], dtype=torch.int32)
        query = torch.stack([self.queries[row][place] for row, place in parts])
        return paged_attention_decode(query, self.keys, self.values, tables, lengths, **options)


def pool(
    lengths: Sequence[int],
    *,
    heads: int = 9,
    kv_heads: int = 3,
    head_dim: int = 64,
    page_size: int = 16,
    dtype: Any = torch.float32,
    seed: int = 0,
) -> Pool:
    """Draw a pool."""
    keys, values, tables, _ = paged(
        lengths,
        kv_heads=kv_heads,
        head_dim=head_dim,
        page_size=page_size,
        dtype=dtype,
        seed=seed,
    )
    generator = torch.Generator().manual_seed(seed + 1)
    queries = tuple(
        torch.randn((length, heads, head_dim), generator=generator).to(dtype) for length in lengths
    )
    return Pool(queries, keys, values, tables, tuple(lengths))
