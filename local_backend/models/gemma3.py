"""Gemma 3: layers that see a window between layers that see all, and norms around everything.

A file says how wide the window is. Which layers have it (five of six) and that these turn by a base
of 10,000 follows from the family.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from local_backend.kvcache.specs import LayerSpec, WindowKV
from local_backend.layers.attention import split_heads
from local_backend.layers.context import Batch
from local_backend.layers.memory import LayerPages
from local_backend.layers.operators import Activation, Operators
from local_backend.layers.rope import Rotation
from local_backend.models.base import Family, Model, ModelConfig, Weights
from local_backend.models.decoder import Decoder, Parts
from local_backend.models.llama import kv_spec
from local_backend.models.metadata import read_common

PERIOD = 6
LOCAL_BASE = 10_000.0
GLOBAL, LOCAL = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma3Config(ModelConfig):
    """The shape of a Gemma 3 model.

    Attributes:
        window: Tokens that a position of a local layer can see, itself included.
    """

    window: int

    def is_local(self, layer: int) -> bool:
        """Whether a layer sees a window only."""
        return (layer + 1) % PERIOD != 0


class Gemma3Layer:
    """One layer."""

    has_operations_only = False

    def __init__(
        self, config: Gemma3Config, index: int, weights: Weights, operators: Operators
    ) -> None:
        width, dim, eps = config.width, config.head_dim, config.eps
        rows, kv_rows = config.heads * dim, config.kv_heads * dim

        def take(name: str, *shape: int) -> Tensor:
            return weights.take(f"blk.{index}.{name}.weight", shape)

        self.spec, self.rope, self._window = _kept(config, index)
        self._heads, self._kv_heads, self._dim = config.heads, config.kv_heads, dim
        self._attention = operators.attention
        self._before = operators.norm(take("attn_norm", width), eps)
        parts = (("attn_q", rows), ("attn_k", kv_rows), ("attn_v", kv_rows))
        self._project = operators.linear(torch.cat([take(name, n, width) for name, n in parts]))
        self._query_norm = operators.norm(take("attn_q_norm", dim), eps)
        self._key_norm = operators.norm(take("attn_k_norm", dim), eps)
        self._join = operators.linear(take("attn_output", width, rows))
        self._after = operators.norm(take("post_attention_norm", width), eps)
        self._middle = operators.norm(take("ffn_norm", width), eps)
        gate, up = take("ffn_gate", config.hidden, width), take("ffn_up", config.hidden, width)
        self._gated = operators.gated(gate, up, Activation.GELU_TANH)
        self._down = operators.linear(take("ffn_down", width, config.hidden))
        self._last = operators.norm(take("post_ffw_norm", width), eps)

    def __call__(self, x: Tensor, rotation: Rotation, pages: LayerPages, batch: Batch) -> Tensor:
        """Take the tokens of a pass one layer further."""
        projected = self._project(self._before(x)).view(x.shape[0], -1, self._dim)
        query, key, value = split_heads(projected, self._heads, self._kv_heads)
        query, key = rotation(self._query_norm(query), self._key_norm(key))
        self._attention.write(key, value, pages, batch)
        mixed = self._attention.attend(query, pages, batch, self._dim**-0.5, self._window)
        x = x + self._after(self._join(mixed.reshape(x.shape[0], -1)))
        return x + self._last(self._down(self._gated(self._middle(x))))


def _kept(config: Gemma3Config, index: int) -> tuple[LayerSpec, int, int]:
    """What a layer keeps, its rotation and its window."""
    full = kv_spec(config)
    if not config.is_local(index):
        return full, GLOBAL, 0
    local = WindowKV(
        kv_heads=full.kv_heads,
        head_dim=full.head_dim,
        size=config.window,
        dtype=full.dtype,
        element_bytes=full.element_bytes,
    )
    return local, LOCAL, config.window


def read_config(metadata: Mapping[str, Any], dtype: str) -> Gemma3Config:
    """Read the shape from the metadata of a file."""
    common = read_common(metadata, "gemma3", dtype)
    shape = {name: getattr(common, name) for name in ModelConfig.__dataclass_fields__}
    return Gemma3Config(**shape, window=int(metadata["gemma3.attention.sliding_window"]))


def build(config: ModelConfig, weights: Weights, operators: Operators) -> Model:
    """Put a model together."""
    if not isinstance(config, Gemma3Config):
        raise TypeError("a Gemma 3 model needs a config of its own family")
    embedding = weights.take("token_embd.weight", (config.vocab_size, config.width))
    bases = {GLOBAL: config.rope_base, LOCAL: LOCAL_BASE}
    parts = Parts(
        embedding=embedding,
        # Rounded to the type of the weights, as it is where the model was trained.
        scale=torch.tensor(math.sqrt(config.width)).to(embedding.dtype),
        ropes=[operators.rope(bases[i], config.head_dim, embedding.dtype) for i in (GLOBAL, LOCAL)],
        layers=[Gemma3Layer(config, i, weights, operators) for i in range(config.layers)],
        norm=operators.norm(weights.take("output_norm.weight", (config.width,)), config.eps),
        head=operators.linear(embedding),
        weights_id=weights.identity,
    )
    return Decoder(config, parts, operators)


# The turns that the family was tuned with; files of the untuned model bring none.
TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'system' and loop.first %}"
    "{% else %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "<start_of_turn>{{ role }}\n"
    "{% if loop.index0 == 1 and messages[0]['role'] == 'system' %}"
    "{{ messages[0]['content'] }}\n\n"
    "{% endif %}"
    "{{ message['content'] | trim }}<end_of_turn>\n"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)

FAMILY = Family(name="gemma3", read_config=read_config, build=build, template=TEMPLATE)
