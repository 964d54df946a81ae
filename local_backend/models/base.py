"""The interface of a model, and what a family of models has to define."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from local_backend.kvcache.specs import LayerSpec
from local_backend.layers.context import ForwardContext
from local_backend.layers.operators import Operators


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The shape of a model.

    Attributes:
        name: What it is called in answers and reports.
        family: Which file of this package reads it.
        vocab_size: Number of token ids.
        layers: Number of layers.
        width: Numbers that a token is between layers.
        heads: Query heads.
        kv_heads: Heads that K and V have.
        head_dim: Numbers in a head.
        hidden: Numbers between the two halves of a feed-forward.
        context_length: Longest sequence that it is meant for.
        eps: Added to mean squares.
        rope_base: Base of the rotation.
        dtype: Name of the type of weights, activations, K and V.
    """

    name: str
    family: str
    vocab_size: int
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    context_length: int
    eps: float = 1e-5
    rope_base: float = 10_000.0
    dtype: str = "float32"


class Model(Protocol):
    """What the engine runs."""

    @property
    def config(self) -> ModelConfig:
        """Its shape."""
        ...

    @property
    def weights_id(self) -> str:
        """Identity of the weights: equal only where every weight is."""
        ...

    @property
    def numerics(self) -> str:
        """What changes K and V at equal weights: types, operators."""
        ...

    @property
    def specs(self) -> tuple[LayerSpec, ...]:
        """What each layer keeps."""
        ...

    def hidden(self, context: ForwardContext, layers: int | None = None) -> Tensor:
        """Run the tokens of a pass through the layers; K and V go to their pages.

        Args:
            context: The pass.
            layers: How many layers to run, from the first on; None for all.

        Returns:
            ``[token, number]``, before the last norm.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of all token ids for rows of :meth:`hidden`, in float32 or better."""
        ...

    def forward(self, context: ForwardContext) -> Tensor:
        """Scores for the tokens of a pass that need them, in their order."""
        ...


class Weights(Protocol):
    """Tensors by name."""

    @property
    def identity(self) -> str:
        """Identity of all of them."""
        ...

    def __contains__(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        ...

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor, in the type that the model computes in.

        Raises:
            WeightsError: There is none, or it has another shape.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a file of this package defines as ``FAMILY``.

    Attributes:
        name: The value of ``general.architecture`` in its files.
        read_config: Metadata of a file and the name of a type to a config.
        build: A config and weights to a model.
        template: Chat template for files that bring none; None where the family has none.
    """

    name: str
    read_config: Callable[[Mapping[str, Any], str], ModelConfig]
    build: Callable[[ModelConfig, Weights, Operators], Model]
    template: str | None = None
