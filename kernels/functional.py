"""Every operation as a function, with what it needs to be called."""

from __future__ import annotations

from local_backend.kernels.memory import Room, empty_pages
from local_backend.kernels.ops.copy_pages import copy_pages
from local_backend.kernels.ops.linear import linear
from local_backend.kernels.ops.paged_attention_decode import paged_attention_decode
from local_backend.kernels.ops.paged_attention_prefill import paged_attention_prefill
from local_backend.kernels.ops.reshape_and_cache import reshape_and_cache
from local_backend.kernels.ops.rms_norm import rms_norm
from local_backend.kernels.ops.rope import rope, rope_tables
from local_backend.kernels.ops.silu_mul import silu_mul
from local_backend.kernels.ops.tiled_linear import tiled_linear
from local_backend.kernels.weights import Weight, pack_weight

__all__ = [
    "Room",
    "Weight",
    "copy_pages",
    "empty_pages",
    "linear",
    "pack_weight",
    "paged_attention_decode",
    "paged_attention_prefill",
    "reshape_and_cache",
    "rms_norm",
    "rope",
    "rope_tables",
    "silu_mul",
    "tiled_linear",
]
