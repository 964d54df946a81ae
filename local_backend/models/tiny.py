"""A decoder without files: 3 layers, 4 query heads, 2 KV heads of 8 numbers, bytes as tokens.

Its weights are drawn from a seed, so its answers mean nothing; its K and V depend on everything
that those of a real model do.
"""

from __future__ import annotations

import torch

from local_backend.layers.operators import ExactOperators, Operators
from local_backend.models.base import Model, ModelConfig
from local_backend.models.llama import build as build_llama
from local_backend.models.weights import DrawnWeights
from local_backend.tokenizer.byte_level import VOCABULARY


def tiny_config(dtype: str = "float32", *, vocab_size: int = VOCABULARY) -> ModelConfig:
    """The shape of the little decoder."""
    return ModelConfig(
        name="tiny",
        family="llama",
        vocab_size=vocab_size,
        layers=3,
        width=32,
        heads=4,
        kv_heads=2,
        head_dim=8,
        hidden=64,
        context_length=65_536,
        dtype=dtype,
    )


def tiny_decoder(
    seed: int = 0,
    dtype: str = "float32",
    *,
    operators: Operators | None = None,
    config: ModelConfig | None = None,
) -> Model:
    """Build the little decoder.

    Args:
        seed: Of its weights.
        dtype: ``float32``, ``float64`` or ``bfloat16``.
        operators: What computes it; exact ones where not given.
        config: Another shape.
    """
    shape = config or tiny_config(dtype)
    label = (
        f"{shape.layers}x{shape.width}x{shape.heads}:{shape.kv_heads}x{shape.head_dim}"
        f"x{shape.hidden}x{shape.vocab_size}"
    )
    weights = DrawnWeights(seed, getattr(torch, shape.dtype), label)
    return build_llama(shape, weights, operators or ExactOperators())
