"""The LLaMA layout: grouped K and V heads, rotated positions, a gated feed-forward, two norms.

SmolLM2 has it, and the little decoder for tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from local_backend.kvcache.specs import FullKV, LayerSpec
from local_backend.layers.attention import split_heads
from local_backend.layers.context import Batch
from local_backend.layers.memory import LayerPages
from local_backend.layers.operators import Activation, Operators
from local_backend.layers.rope import Rotation
from local_backend.models.base import Family, Model, ModelConfig, Weights
from local_backend.models.decoder import Decoder, Parts
from local_backend.models.metadata import read_common


def unpermute(weight: Tensor, heads: int) -> Tensor:
    """Undo the order that files of this family store the rows of Q and K in.

    They alternate the two members of every rotated pair; here the first members come first.
    """
    rows, inputs = weight.shape
    pairs = weight.view(heads, rows // heads // 2, 2, inputs)
    return pairs.transpose(1, 2).reshape(rows, inputs)


class LlamaLayer:
    """One layer."""

    rope = 0
    has_operations_only = True

    def __init__(
        self, config: ModelConfig, index: int, weights: Weights, operators: Operators
    ) -> None:
        width, dim = config.width, config.head_dim
        rows, kv_rows = config.heads * dim, config.kv_heads * dim

        def take(name: str, *shape: int) -> Tensor:
            return weights.take(f"blk.{index}.{name}.weight", shape)

        query = unpermute(take("attn_q", rows, width), config.heads)
        key = unpermute(take("attn_k", kv_rows, width), config.kv_heads)
        self.spec: LayerSpec = kv_spec(config)
        self._heads, self._kv_heads, self._dim = config.heads, config.kv_heads, dim
        self._attention = operators.attention
        self._before = operators.norm(take("attn_norm", width), config.eps)
        self._project = operators.linear(torch.cat([query, key, take("attn_v", kv_rows, width)]))
        self._join = operators.linear(take("attn_output", width, rows))
        self._middle = operators.norm(take("ffn_norm", width), config.eps)
        gate, up = take("ffn_gate", config.hidden, width), take("ffn_up", config.hidden, width)
        self._gated = operators.gated(gate, up, Activation.SILU)
        self._down = operators.linear(take("ffn_down", width, config.hidden))

    def __call__(self, x: Tensor, rotation: Rotation, pages: LayerPages, batch: Batch) -> Tensor:
        """Take the tokens of a pass one layer further."""
        projected = self._project(self._before(x)).view(x.shape[0], -1, self._dim)
        query, key, value = split_heads(projected, self._heads, self._kv_heads)
        query, key = rotation(query, key)
        self._attention.write(key, value, pages, batch)
        mixed = self._attention.attend(query, pages, batch, self._dim**-0.5)
        x = self._join(mixed.reshape(x.shape[0], -1), x)
        return self._down(self._gated(self._middle(x)), x)


def kv_spec(config: ModelConfig) -> FullKV:
    """K and V of all tokens, in the type of the model."""
    size = getattr(torch, config.dtype).itemsize
    return FullKV(
        kv_heads=config.kv_heads, head_dim=config.head_dim, dtype=config.dtype, element_bytes=size
    )


def read_config(metadata: Mapping[str, Any], dtype: str) -> ModelConfig:
    """Read the shape from the metadata of a file."""
    return read_common(metadata, "llama", dtype)


def build(config: ModelConfig, weights: Weights, operators: Operators) -> Model:
    """Put a model together."""
    embedding = weights.take("token_embd.weight", (config.vocab_size, config.width))
    head = embedding
    if "output.weight" in weights:
        head = weights.take("output.weight", (config.vocab_size, config.width))
    parts = Parts(
        embedding=embedding,
        ropes=[operators.rope(config.rope_base, config.head_dim, embedding.dtype)],
        layers=[LlamaLayer(config, i, weights, operators) for i in range(config.layers)],
        norm=operators.norm(weights.take("output_norm.weight", (config.width,)), config.eps),
        head=operators.linear(head),
        weights_id=weights.identity,
    )
    return Decoder(config, parts, operators)


FAMILY = Family(name="llama", read_config=read_config, build=build)
