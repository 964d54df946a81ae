"""Attention over pages, behind one interface.

:class:`GatherAttention` says what is right: it gathers the pages of a sequence and calls torch.
:class:`TiledAttention` says it to the bit: the sums of a query run in an order that depends on
nothing but its own position, so it gives the same whether it comes alone, in a chunk or in a batch.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from local_backend.layers.context import Batch
from local_backend.layers.memory import LayerPages


class Attention(Protocol):
    """Writes K and V into pages, and reads them back for queries."""

    def write(self, key: Tensor, value: Tensor, pages: LayerPages, batch: Batch) -> None:
        """Put K and V of the tokens of a pass, ``[token, head, number]``, into their slots."""
        ...

    def attend(
        self, query: Tensor, pages: LayerPages, batch: Batch, scale: float, window: int = 0
    ) -> Tensor:
        """Let every query see the keys of its sequence up to its own position.

        Args:
            query: ``[token, head, number]``; as many heads as the keys have, or a multiple.
            pages: K and V of the layer, those of this pass included.
            batch: Where the sequences are.
            scale: Factor of the scores.
            window: Keys that a query can see, its own included; 0 for all.

        Returns:
            ``[token, head, number]``, of the query's type.
        """
        ...


def write_slots(key: Tensor, value: Tensor, pages: LayerPages, batch: Batch) -> None:
    """Put K and V into the slots of a batch."""
    at = batch.slots.long()
    for new, memory in ((key, pages.key), (value, pages.value)):
        memory.view(-1, *memory.shape[2:]).index_copy_(0, at, new)


def gather(
    pages: LayerPages, batch: Batch, sequence: int, first: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """K and V of one sequence from a position on, ``[head, token, number]``."""
    size, end = pages.page_size, batch.ends[sequence]
    ids = batch.tables[sequence, first // size : -(-end // size)]
    skipped = first % size

    def part(memory: Tensor) -> Tensor:
        rows = memory[ids].reshape(-1, *memory.shape[2:])
        return rows[skipped : skipped + end - first].transpose(0, 1).to(dtype)

    return part(pages.key), part(pages.value)


def first_seen(position: int, window: int) -> int:
    """The first key that the query at a position sees."""
    return max(0, position - window + 1) if window else 0


class GatherAttention:
    """Copies the pages of each sequence together and calls torch's own attention."""

    write = staticmethod(write_slots)

    def attend(
        self, query: Tensor, pages: LayerPages, batch: Batch, scale: float, window: int = 0
    ) -> Tensor:
        """See :class:`Attention`."""
        out = torch.empty((*query.shape[:2], pages.value.shape[3]), dtype=query.dtype)
        for sequence, end in enumerate(batch.ends):
            rows = slice(batch.bounds[sequence], batch.bounds[sequence + 1])
            count = rows.stop - rows.start
            first = first_seen(end - count, window)
            key, value = gather(pages, batch, sequence, first, query.dtype)
            seen = None if count == 1 else _visible(end - count, count, first, window)
            mixed = F.scaled_dot_product_attention(
                query[rows].transpose(0, 1).unsqueeze(0),
                key.unsqueeze(0),
                value.unsqueeze(0),
                attn_mask=seen,
                scale=scale,
                enable_gqa=query.shape[1] != key.shape[0],
            )
            out[rows] = mixed[0].transpose(0, 1)
        return out


def _visible(start: int, count: int, first: int, window: int) -> Tensor:
    """Which keys, from ``first`` on, the queries from ``start`` on can see."""
    at = torch.arange(start, start + count).unsqueeze(1)
    key = torch.arange(first, start + count).unsqueeze(0)
    seen = key <= at
    return seen & (key > at - window) if window else seen


# A row that has seen nothing yet. Finite, so that differences of two of them are numbers.
_NOTHING = -1e30


class TiledAttention:
    """Goes through the keys tile by tile with a running maximum, sum and accumulator.

    Tiles begin at multiples of their size from the start of the sequence, and every product has the
    same shape: ``strip`` rows by ``tile`` keys. A key that a row must not see has weight zero and
    changes no bit. No table of all scores is ever in memory.

    Args:
        tile: Keys in a tile.
        strip: Rows (a query of one head) in a strip.
    """

    def __init__(self, tile: int = 64, strip: int = 16) -> None:
        self.tile = tile
        self.strip = strip

    write = staticmethod(write_slots)

    def attend(
        self, query: Tensor, pages: LayerPages, batch: Batch, scale: float, window: int = 0
    ) -> Tensor:
        """See :class:`Attention`."""
        out = torch.empty((*query.shape[:2], pages.value.shape[3]), dtype=query.dtype)
        for sequence, end in enumerate(batch.ends):
            rows = slice(batch.bounds[sequence], batch.bounds[sequence + 1])
            start = end - (rows.stop - rows.start)
            seen = first_seen(start, window)
            first = seen // self.tile * self.tile
            precise = torch.promote_types(query.dtype, torch.float32)
            # Zeros up to the first key: what lies in pages that nobody sees may be no number.
            key, value = (
                F.pad(part, (0, 0, seen - first, 0))
                for part in gather(pages, batch, sequence, seen, precise)
            )
            out[rows] = self._sequence(
                query[rows].to(precise), key, value, (start, first, window), scale
            )
        return out

    def _sequence(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        places: tuple[int, int, int],
        scale: float,
    ) -> Tensor:
        """One sequence: ``[query, head, number]`` against ``[kv head, key, number]``."""
        start, first, window = places
        count, heads, dim = query.shape
        kv_heads = key.shape[0]
        group = heads // kv_heads
        # Two strips at least: torch computes a batch of one matrix by another routine.
        strips = max(2, -(-count * group // self.strip))
        rows = torch.zeros((kv_heads, strips * self.strip, dim), dtype=query.dtype)
        grouped = query.reshape(count, kv_heads, group, dim).transpose(0, 1)
        rows[:, : count * group] = grouped.reshape(kv_heads, count * group, dim)
        rows = rows.view(kv_heads * strips, self.strip, dim) * scale
        at = (start + torch.arange(strips * self.strip) // group).clamp(max=start + count - 1)
        at = at.view(1, strips, self.strip, 1)
        running = _Running(kv_heads * strips, self.strip, value.shape[2], query.dtype)
        for begin in range(first, start + count, self.tile):
            tile = slice(begin - first, begin - first + self.tile)
            scores = torch.bmm(rows, self._spread(key[:, tile], strips).transpose(1, 2))
            place = torch.arange(begin, begin + self.tile)
            seen = (place <= at) & (place > at - window) if window else place <= at
            seen = seen.expand(kv_heads, strips, self.strip, self.tile).reshape(scores.shape)
            running.add(scores, seen, self._spread(value[:, tile], strips))
        mixed = running.result().view(kv_heads, strips * self.strip, -1)[:, : count * group]
        return mixed.reshape(kv_heads, count, group, -1).transpose(0, 1).reshape(count, heads, -1)

    def _spread(self, part: Tensor, strips: int) -> Tensor:
        """A tile for every strip, filled up with zeros at the end of the sequence."""
        heads, keys, dim = part.shape
        if keys < self.tile:
            part = torch.cat([part, part.new_zeros((heads, self.tile - keys, dim))], dim=1)
        spread = part.unsqueeze(1).expand(heads, strips, self.tile, dim)
        return spread.reshape(heads * strips, self.tile, dim)


class _Running:
    """Softmax over keys that come tile by tile."""

    def __init__(self, strips: int, rows: int, dim: int, dtype: torch.dtype) -> None:
        self.maximum = torch.full((strips, rows, 1), _NOTHING, dtype=dtype)
        self.weight = torch.zeros((strips, rows, 1), dtype=dtype)
        self.total = torch.zeros((strips, rows, dim), dtype=dtype)

    def add(self, scores: Tensor, seen: Tensor, value: Tensor) -> None:
        scores = scores.masked_fill(~seen, _NOTHING)
        maximum = torch.maximum(self.maximum, scores.amax(dim=-1, keepdim=True))
        weights = torch.exp(scores - maximum).masked_fill(~seen, 0.0)
        keep = torch.exp(self.maximum - maximum)
        self.maximum = maximum
        self.weight = self.weight * keep + weights.sum(dim=-1, keepdim=True)
        self.total = self.total * keep + torch.bmm(weights, value)

    def result(self) -> Tensor:
        return self.total / self.weight


def split_heads(projected: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of a joint projection, ``[token, head, number]``."""
    end = heads + kv_heads
    return projected[:, :heads], projected[:, heads:end], projected[:, end:]
