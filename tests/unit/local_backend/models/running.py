"""Runs a model on one or several sequences, with pages in an order that only a table tells."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from local_backend.kvcache.specs import group_layers
from local_backend.layers.context import Chunk, ForwardContext, Logits
from local_backend.layers.memory import KVMemory
from local_backend.models.base import Model


class Runner:
    """Memory for some sequences of a model, and their page tables."""

    def __init__(
        self, model: Model, tokens: int, sequences: int = 1, page_size: int = 16, seed: int = 0
    ) -> None:
        self.model = model
        self.page_size = page_size
        groups = group_layers(model.specs, page_size)
        each = -(-tokens // page_size)
        self.memory = KVMemory(
            model.specs, groups, {group.name: each * sequences for group in groups}
        )
        self.tables = []
        shuffled = random.Random(seed)
        drawn = []
        for _ in groups:
            pages = list(range(1, each * sequences + 1))
            shuffled.shuffle(pages)
            drawn.append(pages)
        for index in range(sequences):
            part = slice(index * each, (index + 1) * each)
            self.tables.append([pages[part] for pages in drawn])
        self.past = [0] * sequences

    def chunk(self, tokens: Sequence[int], sequence: int = 0, logits: Logits = Logits.ALL) -> Chunk:
        found = Chunk(tokens, self.past[sequence], self.tables[sequence], logits)
        self.past[sequence] += len(tokens)
        return found

    def run(self, *chunks: Chunk) -> Tensor:
        return self.model.forward(ForwardContext.build(chunks, self.memory))

    def split(self, tokens: Sequence[int], sizes: Sequence[int], sequence: int = 0) -> Tensor:
        """Logits of all positions, computed in chunks of the given sizes."""
        assert sum(sizes) == len(tokens)
        found, start = [], self.past[sequence]
        for size in sizes:
            at = self.past[sequence] - start
            found.append(self.run(self.chunk(tokens[at : at + size], sequence)))
        return torch.cat(found)

    def greedy(self, prompt: Sequence[int], count: int, stops: frozenset[int]) -> list[int]:
        """The likeliest token, again and again."""
        found: list[int] = []
        step = list(prompt)
        while len(found) < count:
            scores = self.run(self.chunk(step, logits=Logits.LAST))
            found.append(int(scores[0].argmax()))
            if found[-1] in stops:
                break
            step = found[-1:]
        return found

    def keys(self, layer: int, sequence: int, start: int, end: int) -> Tensor:
        """Keys that a layer keeps for some positions of a sequence."""
        pages = self.memory.layers[layer]
        table = torch.tensor(self.tables[sequence][pages.group])
        rows = pages.key[table].reshape(-1, *pages.key.shape[2:])
        return rows[start:end].clone()


def draw(count: int, seed: int, below: int = 256) -> list[int]:
    """Token ids."""
    source = random.Random(seed)
    return [source.randrange(below) for _ in range(count)]
