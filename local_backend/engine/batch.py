"""Lays out a pass of the model from page tables, without walking through them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from local_backend.engine.scheduler import Work
from local_backend.kvcache.keys import TOKEN_BYTES
from local_backend.layers.context import Batch, ForwardContext, Logits
from local_backend.layers.memory import KVMemory

_TABLE_ITEM = array("i").itemsize


def lay_out(works: Seq[Work], memory: KVMemory) -> ForwardContext:
    """The same as ``ForwardContext.build``, for tables that are known to be right.

    Args:
        works: Each with at least one token; their pages are writable.
        memory: Where the pages lie.
    """
    bounds, ends = [0], list[int]()
    wanted = array("q")
    positions = array("q")
    data = bytearray()
    for work in works:
        data += work.sequence.key.data[work.start * TOKEN_BYTES : work.end * TOKEN_BYTES]
        positions.extend(range(work.start, work.end))
        bounds.append(len(positions))
        ends.append(work.end)
        if work.logits is Logits.LAST:
            wanted.append(len(positions) - 1)
    offsets, lengths = _ints(array("i", bounds)), _ints(array("i", ends))
    batches = tuple(
        _batch(works, group, memory.page_size, (offsets, lengths), (tuple(bounds), tuple(ends)))
        for group in range(len(memory.groups))
    )
    return ForwardContext(
        tokens=torch.frombuffer(data, dtype=torch.int32).long(),
        positions=torch.frombuffer(positions, dtype=torch.int64),
        batches=batches,
        memory=memory,
        wanted=torch.frombuffer(wanted, dtype=torch.int64) if wanted else torch.empty(0).long(),
    )


def _batch(
    works: Seq[Work],
    group: int,
    size: int,
    tensors: tuple[Tensor, Tensor],
    numbers: tuple[tuple[int, ...], tuple[int, ...]],
) -> Batch:
    bounds, ends = numbers
    width = max(-(-end // size) for end in ends)
    rows = bytearray(len(works) * width * _TABLE_ITEM)
    slots = array("i")
    for index, work in enumerate(works):
        pages = work.sequence.tables[group].pages
        used = -(-work.end // size)
        at = index * width * _TABLE_ITEM
        rows[at : at + used * _TABLE_ITEM] = pages[:used].tobytes()
        for number in range(work.start // size, used):
            base = (pages[number] - number) * size
            first, last = max(work.start, number * size), min(work.end, (number + 1) * size)
            slots.extend(range(base + first, base + last))
    return Batch(
        offsets=tensors[0],
        lengths=tensors[1],
        tables=torch.frombuffer(rows, dtype=torch.int32).reshape(len(works), width),
        slots=_ints(slots),
        bounds=bounds,
        ends=ends,
    )


def _ints(numbers: array[int]) -> Tensor:
    return torch.frombuffer(numbers, dtype=torch.int32)
