"""Arithmetic of attention memory: pairs, bytes of KV, bytes of score tables."""

from __future__ import annotations

GIB = 1 << 30


def kv_pairs(tokens: int, kv_heads: int) -> int:
    """Key-value pairs that one layer stores: one for each token and key-value head."""
    return tokens * kv_heads


def kv_bytes(*, layers: int, tokens: int, kv_heads: int, head_dim: int, element_bytes: int) -> int:
    """Bytes of the keys and values of some tokens in all layers."""
    return 2 * layers * kv_pairs(tokens, kv_heads) * head_dim * element_bytes


def score_table_bytes(queries: int, keys: int, *, element_bytes: int, tables: int = 1) -> int:
    """Bytes of full tables of scores (or weights) of one head, masked places included."""
    return queries * keys * element_bytes * tables
