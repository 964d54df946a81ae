"""What one forward pass works on. It is handed from layer to layer; nothing of it is global."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from local_backend.errors import ForwardError
from local_backend.layers.memory import KVMemory, LayerPages


class Logits(StrEnum):
    """Which positions of a chunk need logits."""

    NONE = "none"
    """None: more of the prompt follows."""
    LAST = "last"
    """The last one, from which the next token is drawn."""
    ALL = "all"
    """Every one, as for scoring or for checking a draft."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one sequence that are computed in this pass.

    Attributes:
        tokens: Their ids.
        past: Tokens before them, whose K and V are in the pages already.
        tables: Page table of each group, in the groups' order, from the first page of the sequence
            on.
        logits: Which of them need logits.
    """

    tokens: Sequence[int]
    past: int
    tables: Sequence[Sequence[int]]
    logits: Logits = Logits.LAST


@dataclass(frozen=True)
class Batch:
    """Where the sequences of a pass are, seen from one group of layers.

    Attributes:
        offsets: int32 ``[sequences + 1]``: where the tokens of each begin among all of the pass.
        lengths: int32 ``[sequences]``: tokens of each, past and present.
        tables: int32 ``[sequences, width]``: pages of each.
        slots: int32 ``[tokens]``: page and place in the page (``page * page_size + place``) that K
            and V of each token go to.
        bounds: ``offsets`` as numbers.
        ends: ``lengths`` as numbers.
    """

    offsets: Tensor
    lengths: Tensor
    tables: Tensor
    slots: Tensor
    bounds: tuple[int, ...]
    ends: tuple[int, ...]

    @cached_property
    def is_decode(self) -> bool:
        """Whether every sequence brings one token."""
        return all(b - a == 1 for a, b in pairwise(self.bounds))


@dataclass(frozen=True, slots=True)
class ForwardContext:
    """One forward pass.

    Attributes:
        tokens: int64 ``[tokens]``: ids of all chunks, one after the other.
        positions: int64 ``[tokens]``: place of each in its sequence.
        batches: One for each group.
        memory: Where K and V are.
        wanted: int64: which of the tokens need logits.
    """

    tokens: Tensor
    positions: Tensor
    batches: tuple[Batch, ...]
    memory: KVMemory
    wanted: Tensor

    def layer(self, index: int) -> tuple[LayerPages, Batch]:
        """Where a layer keeps its K and V, and how the sequences lie there."""
        pages = self.memory.layers[index]
        return pages, self.batches[pages.group]

    @classmethod
    def build(cls, chunks: Sequence[Chunk], memory: KVMemory) -> ForwardContext:
        """Lay out a pass.

        Raises:
            ForwardError: A chunk is empty, or a table is too short or names a page that is not
                there.
        """
        device = memory.layers[0].key.device
        bounds, ends = [0], list[int]()
        tokens, positions, wanted = list[int](), list[int](), list[int]()
        for index, chunk in enumerate(chunks):
            if not chunk.tokens or chunk.past < 0:
                raise ForwardError(f"chunk {index} has no tokens or a negative past")
            start, count = bounds[-1], len(chunk.tokens)
            tokens.extend(chunk.tokens)
            positions.extend(range(chunk.past, chunk.past + count))
            wanted.extend(_wanted(chunk.logits, start, start + count))
            bounds.append(start + count)
            ends.append(chunk.past + count)
        place = torch.tensor(positions, dtype=torch.int64, device=device)
        shape = _Shape(tuple(bounds), tuple(ends), place)
        batches = tuple(
            _batch([chunk.tables[group] for chunk in chunks], shape, memory, group)
            for group in range(len(memory.groups))
        )
        return cls(
            tokens=torch.tensor(tokens, dtype=torch.int64, device=device),
            positions=place,
            batches=batches,
            memory=memory,
            wanted=torch.tensor(wanted, dtype=torch.int64, device=device),
        )


@dataclass(frozen=True, slots=True)
class _Shape:
    bounds: tuple[int, ...]
    ends: tuple[int, ...]
    positions: Tensor


def _wanted(logits: Logits, start: int, end: int) -> range:
    if logits is Logits.NONE:
        return range(0)
    return range(end - 1, end) if logits is Logits.LAST else range(start, end)


def _batch(tables: Sequence[Sequence[int]], shape: _Shape, memory: KVMemory, group: int) -> Batch:
    size, spec = memory.page_size, memory.groups[group]
    pages = memory.layers[spec.layers[0]].key.shape[0]
    width = max((-(-end // size) for end in shape.ends), default=0)
    rows = []
    for index, (table, end) in enumerate(zip(tables, shape.ends, strict=True)):
        needed = -(-end // size)
        row = list(table[:needed])
        if len(row) < needed or not all(0 <= page < pages for page in row):
            raise ForwardError(
                f"sequence {index} of group {spec.name!r} needs {needed} pages below {pages}; its"
                f" table has {len(table)}"
            )
        rows.append(row + [0] * (width - needed))
    device = shape.positions.device
    table_rows = torch.tensor(rows, dtype=torch.int32, device=device).reshape(len(rows), width)
    counts = torch.tensor([b - a for a, b in pairwise(shape.bounds)])
    owner = torch.arange(len(rows)).repeat_interleave(counts).to(device)
    page = table_rows[owner, shape.positions // size]
    return Batch(
        offsets=torch.tensor(shape.bounds, dtype=torch.int32, device=device),
        lengths=torch.tensor(shape.ends, dtype=torch.int32, device=device),
        tables=table_rows,
        slots=page * size + (shape.positions % size).to(torch.int32),
        bounds=shape.bounds,
        ends=shape.ends,
    )
