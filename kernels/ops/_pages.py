"""Arguments for the attention operations, and the answer by the textbook formula."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "float16", "bfloat16", "float64")


def paged(
    lengths: Sequence[int],
    *,
    kv_heads: int,
    head_dim: int,
    page_size: int,
    dtype: torch.dtype,
    seed: int = 0,
    first_read: Sequence[int] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make pages in shuffled order; what no sequence owns is NaN, what is not read is page -1.

    Args:
        lengths: Keys of each sequence.
        kv_heads: Key-value heads.
        head_dim: Elements of a head.
        page_size: Keys of a page.
        dtype: Type of keys and values.
        seed: Of the random numbers.
        first_read: First key of each sequence that may be read; pages before it are gone.

    Returns:
        Key pages, value pages, page tables, lengths.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    needed = [-(-length // page_size) for length in lengths]
    shape = (sum(needed) + 2, page_size, kv_heads, head_dim)
    keys, values = (torch.full(shape, torch.nan, dtype=dtype) for _ in range(2))
    order = torch.randperm(shape[0], generator=generator).to(torch.int32).tolist()
    tables = torch.full((len(lengths), max(needed, default=0) + 1), -1, dtype=torch.int32)
    for row, length in enumerate(lengths):
        first = first_read[row] if first_read else 0
        for start in range(first // page_size * page_size, length, page_size):
            page = order.pop()
            tables[row, start // page_size] = page
            low, high = max(first, start) - start, min(length - start, page_size)
            for pages in (keys, values):
                drawn = torch.randn((high - low, kv_heads, head_dim), generator=generator)
                pages[page, low:high] = drawn.to(dtype)
    return keys, values, tables, torch.tensor(lengths, dtype=torch.int32)


def full_softmax(
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
    """Compute attention by whole tables in float64, key by key out of the pages."""
    import torch

    out = torch.zeros(query.shape, dtype=torch.float64)
    group = query.shape[1] // max(1, key_pages.shape[2])
    for row, (begin, end) in enumerate(itertools.pairwise(query_offsets.tolist())):
        length = int(lengths[row])
        for index in range(begin, end if length else begin):
            place = length - (end - begin) + index - begin
            low = 0 if window is None else max(0, place - window + 1)
            places = torch.arange(low, place + 1 if causal else length)
            page, slot = places // key_pages.shape[1], places % key_pages.shape[1]
            at = (page_tables[row].long()[page], slot)
            keys, values = (
                pages[at].double().repeat_interleave(group, 1).transpose(0, 1)
                for pages in (key_pages, value_pages)
            )
            scores = (keys @ query[index].double()[:, :, None])[..., 0] * scale
            out[index] = (scores.softmax(-1)[:, None] @ values)[:, 0]
    return out


def _ragged(
    lengths: Sequence[int],
    queries: Sequence[int],
    *,
    heads: int = 3,
    kv_heads: int = 1,
    head_dim: int = 32,
    page_size: int = 16,
    window: int | None = None,
    causal: bool = True,
    dtype: str = "float32",
) -> tuple[Any, ...]:
    import torch

    kind = getattr(torch, dtype)
    first = [
        0 if window is None else max(0, length - count - window + 1)
        for length, count in zip(lengths, queries, strict=True)
    ]
    keys, values, tables, sizes = paged(
        lengths,
        kv_heads=kv_heads,
        head_dim=head_dim,
        page_size=page_size,
        dtype=kind,
        seed=len(lengths) + head_dim,
        first_read=first,
    )
    drawn = torch.randn((sum(queries), heads, head_dim), generator=torch.Generator().manual_seed(1))
    offsets = torch.tensor([0, *itertools.accumulate(queries)], dtype=torch.int32)
    scale = head_dim**-0.5
    return drawn.to(kind), keys, values, tables, sizes, offsets, scale, causal, window


def prefill_cases() -> Iterator[tuple[Any, ...]]:
    """Yield arguments of the prefill: one behaviour a case, each in every type."""
    import torch

    for dtype in DTYPES:
        yield _ragged([5], [5], dtype=dtype)
        yield _ragged([1, 37, 20], [1, 3, 20], heads=4, kv_heads=2, dtype=dtype)
        yield _ragged([40, 0, 9], [17, 0, 0], dtype=dtype)  # empty, and one without new tokens
        yield _ragged([70], [35], heads=2, kv_heads=2, head_dim=64, window=20, dtype=dtype)
        yield _ragged([33], [7], window=1, dtype=dtype)
        yield _ragged([19, 11], [6, 11], causal=False, dtype=dtype)
        yield _ragged([23], [23], heads=5, kv_heads=1, head_dim=20, page_size=7, dtype=dtype)
        yield _ragged([600], [9], heads=1, head_dim=16, page_size=32, dtype=dtype)
        yield _ragged([], [], dtype=dtype)
        query, *rest = _ragged([30], [30], heads=6, kv_heads=3, page_size=5, dtype=dtype)
        wide = query.new_full((30, 9, 48), float("nan"))  # as a slice of a fused projection is
        wide[:, :6, :32] = query
        both = torch.stack(rest[:2], 1)  # keys and values in one allocation
        yield (wide[:, :6, :32], both[:, 0], both[:, 1], *rest[2:])


def decode_cases() -> Iterator[tuple[Any, ...]]:
    """Yield arguments of the decode: the prefill's where each sequence has one query, and more."""
    for dtype in DTYPES:
        for lengths, options in (
            ([1], {}),
            ([17, 1, 600, 64], {"heads": 9, "kv_heads": 3, "head_dim": 64}),
            ([5, 0, 3], {"heads": 2, "kv_heads": 2, "head_dim": 16, "page_size": 4}),
            ([90, 2], {"heads": 4, "kv_heads": 1, "window": 33}),
            ([50], {"heads": 17, "kv_heads": 1, "head_dim": 24, "page_size": 3}),
            ([40, 41], {"heads": 8, "kv_heads": 1, "head_dim": 256, "page_size": 16}),
            # Heads that share a pass over the keys: two passes; a window that begins within pages.
            ([130, 700, 64], {"heads": 32, "kv_heads": 8, "head_dim": 64, "page_size": 16}),
            ([300, 256], {"heads": 14, "kv_heads": 7, "window": 150, "page_size": 32}),
            ([], {}),
        ):
            sized: dict[str, Any] = dict(options)
            case = _ragged(lengths, [1] * len(lengths), dtype=dtype, **sized)
            query, keys, values, tables, sizes, _, scale, _, window = case
            yield query, keys, values, tables, sizes, scale, window
