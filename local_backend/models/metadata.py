"""Reads what files of most families say about the shape of their model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from local_backend.errors import WeightsError
from local_backend.models.base import ModelConfig


def read_common(metadata: Mapping[str, Any], family: str, dtype: str) -> ModelConfig:
    """Read the shape.

    Raises:
        WeightsError: A value is missing or makes no sense, or the file scales its rotations, which
            this version does not do.
    """
    fields = _Fields(metadata, family)
    width, heads = fields.count("embedding_length"), fields.count("attention.head_count")
    kv_heads = fields.count("attention.head_count_kv", heads)
    head_dim = fields.count("attention.key_length", width // heads)
    if fields.count("attention.value_length", head_dim) != head_dim:
        raise WeightsError(f"{family}: keys and values of different length are not supported")
    if heads % kv_heads:
        raise WeightsError(f"{family}: {heads} query heads cannot share {kv_heads} KV heads evenly")
    if fields.count("rope.dimension_count", head_dim) != head_dim:
        raise WeightsError(f"{family}: heads that are rotated in part are not supported")
    scaling = metadata.get(f"{family}.rope.scaling.type", "none")
    if scaling not in ("none", ""):
        raise WeightsError(f"{family}: scaled rotations ({scaling!r}) are not supported")
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    return ModelConfig(
        name=str(metadata.get("general.name", family)),
        family=family,
        vocab_size=fields.count("vocab_size", len(tokens)),
        layers=fields.count("block_count"),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden=fields.count("feed_forward_length"),
        context_length=fields.count("context_length"),
        eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope_base=fields.number("rope.freq_base", 10_000.0),
        dtype=dtype,
    )


class _Fields:
    def __init__(self, metadata: Mapping[str, Any], family: str) -> None:
        self._metadata = metadata
        self._family = family

    def number(self, name: str, default: float | None = None) -> float:
        found = self._metadata.get(f"{self._family}.{name}", default)
        if not isinstance(found, int | float) or found <= 0:
            raise WeightsError(f"{self._family}.{name} is {found!r}; a positive number is needed")
        return float(found)

    def count(self, name: str, default: int | None = None) -> int:
        return int(self.number(name, default))
