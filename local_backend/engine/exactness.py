"""Tries whether the bits of a model's results depend on how its tokens are batched and cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from local_backend.kvcache.specs import group_layers
from local_backend.layers.context import Chunk, ForwardContext, Logits
from local_backend.layers.memory import KVMemory

if TYPE_CHECKING:
    from local_backend.models.base import Model


@dataclass(frozen=True, slots=True)
class Trial:
    """One way of computing the same tokens.

    Attributes:
        name: The way.
        difference: Largest difference of any score to that of the prompt computed whole, alone.
        is_equal: Whether all bits agree.
    """

    name: str
    difference: float
    is_equal: bool


@dataclass(frozen=True, slots=True)
class Exactness:
    """What was tried, and what came of it.

    Attributes:
        trials: Each way.
    """

    trials: tuple[Trial, ...]

    @property
    def is_exact(self) -> bool:
        """Whether all ways gave the same bits."""
        return all(trial.is_equal for trial in self.trials)

    def describe(self) -> str:
        """The ways that gave other bits, and by how much; or that none did."""
        other = [f"{t.name} (up to {t.difference:.1e})" for t in self.trials if not t.is_equal]
        return ", ".join(other) or "no difference found"


def try_exactness(model: Model, page_size: int = 16) -> Exactness:
    """Compute some 100 tokens in several ways and compare every score.

    A difference proves that a model is not exact. That there is none is evidence for shapes like
    these; what the operators promise is in their ``is_exact``.

    Args:
        model: The model; its K and V go to memory of their own.
        page_size: Tokens in a page.
    """
    trial = _Trials(model, page_size)
    length = trial.length
    prefix = length // 2 // page_size * page_size or page_size
    ways = {
        "in chunks of odd sizes": trial.split((1, 7, 20, length)),
        "behind a cached prefix": trial.split((prefix, length)),
        "token by token": trial.split((length // 2, *range(length // 2 + 1, length + 1))),
        "beside others": trial.beside(),
    }
    whole = trial.split((length,))
    return Exactness(tuple(_compare(name, got, whole) for name, got in ways.items()))


def _compare(name: str, got: Tensor, whole: Tensor) -> Trial:
    return Trial(name, float((got - whole).abs().max()), bool(torch.equal(got, whole)))


class _Trials:
    def __init__(self, model: Model, page_size: int) -> None:
        self._model = model
        self.length = min(100, model.config.context_length)
        source = torch.Generator().manual_seed(0)
        size = (3, self.length)
        self._ids = torch.randint(model.config.vocab_size, size, generator=source).tolist()
        self._specs = group_layers(model.specs, page_size)
        self._each = -(-self.length // page_size)
        pages = {spec.name: 3 * self._each for spec in self._specs}
        self._memory = KVMemory(model.specs, self._specs, pages)

    def _chunk(self, sequence: int, start: int, end: int) -> Chunk:
        pages = range(1 + sequence * self._each, 1 + (sequence + 1) * self._each)
        tokens = self._ids[sequence][start:end]
        return Chunk(tokens, start, [pages] * len(self._specs), Logits.ALL)

    def _run(self, *chunks: Chunk) -> Tensor:
        return self._model.forward(ForwardContext.build(chunks, self._memory))

    def split(self, ends: Sequence[int]) -> Tensor:
        """Scores of the first sequence, in chunks that end at some places."""
        starts = [0, *ends[:-1]]
        return torch.cat(
            [self._run(self._chunk(0, a, b)) for a, b in zip(starts, ends, strict=True)]
        )

    def beside(self) -> Tensor:
        """Scores of the first sequence in a pass with two more."""
        others = [self._chunk(1, 0, self.length // 3), self._chunk(2, 0, self.length)]
        scores = self._run(others[0], self._chunk(0, 0, self.length), others[1])
        begin = self.length // 3
        return scores[begin : begin + self.length]
