"""What decoders have in common: embedding, layers one after the other, norm, scores."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from local_backend._typing import override
from local_backend.errors import ForwardError
from local_backend.kvcache.specs import LayerSpec
from local_backend.layers.context import Batch, ForwardContext
from local_backend.layers.memory import LayerPages
from local_backend.layers.operators import Linear, Operators, Unary
from local_backend.layers.rope import Rope, Rotation
from local_backend.models.base import Model, ModelConfig


class Layer(Protocol):
    """One layer of a decoder."""

    spec: LayerSpec
    rope: int
    has_operations_only: bool
    """Whether it does nothing else to tensors than to view parts of them."""

    def __call__(self, x: Tensor, rotation: Rotation, pages: LayerPages, batch: Batch) -> Tensor:
        """Take the tokens of a pass one layer further."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a family puts together.

    Attributes:
        embedding: ``[vocabulary, number]``.
        scale: Factor of the embedded tokens; None for 1.
        ropes: The rotations that its layers use.
        layers: In order; each names its rotation by index.
        norm: The last norm.
        head: From the last hidden state to scores.
        weights_id: Identity of the weights.
    """

    embedding: Tensor
    ropes: Sequence[Rope]
    layers: Sequence[Layer]
    norm: Unary
    head: Linear
    weights_id: str
    scale: Tensor | None = None


def _at_once(_rows: int) -> AbstractContextManager[object]:
    return nullcontext()


class Decoder(Model):
    """A decoder of any family.

    Args:
        config: Its shape.
        parts: What it is made of.
        operators: What computes it; only the name is kept.
    """

    def __init__(self, config: ModelConfig, parts: Parts, operators: Operators) -> None:
        self._config = config
        self._parts = parts
        self._operators = operators.name
        is_pure = all(layer.has_operations_only for layer in parts.layers)
        self._together = operators.together if is_pure else _at_once

    @property
    @override
    def config(self) -> ModelConfig:
        return self._config

    @property
    @override
    def weights_id(self) -> str:
        return self._parts.weights_id

    @property
    @override
    def numerics(self) -> str:
        return f"{self._config.dtype}/{self._operators}"

    @property
    @override
    def specs(self) -> tuple[LayerSpec, ...]:
        return tuple(layer.spec for layer in self._parts.layers)

    @override
    @torch.inference_mode()
    def hidden(self, context: ForwardContext, layers: int | None = None) -> Tensor:
        parts = self._parts
        if len(context.memory.layers) != len(parts.layers):
            raise ForwardError(
                f"the memory has {len(context.memory.layers)} layers, the model {len(parts.layers)}"
            )
        tokens = context.tokens
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < self._vocabulary:
            raise ForwardError(
                f"token ids must be from 0 to {self._vocabulary - 1}; there are"
                f" {int(tokens.min())} to {int(tokens.max())}"
            )
        x = parts.embedding[tokens]
        if parts.scale is not None:
            x = x * parts.scale
        rotations = [rope.at(context.positions) for rope in parts.ropes]
        with self._together(x.shape[0]):
            for index, layer in enumerate(parts.layers[:layers]):
                pages, batch = context.layer(index)
                x = layer(x, rotations[layer.rope], pages, batch)
        return x

    @property
    def _vocabulary(self) -> int:
        return self._parts.embedding.shape[0]

    @override
    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        scores = self._parts.head(self._parts.norm(hidden))
        return scores.to(torch.promote_types(scores.dtype, torch.float32))

    @override
    def forward(self, context: ForwardContext) -> Tensor:
        hidden = self.hidden(context)
        return self.logits(hidden[context.wanted])
