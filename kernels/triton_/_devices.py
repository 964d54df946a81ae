"""Which tensors Triton can take."""

from __future__ import annotations

import os
import sys
from typing import Any


def are_usable(first: Any, *others: Any) -> bool:
    """Whether all are on a GPU, or on the CPU while Triton interprets, in a type that works."""
    torch = sys.modules.get("torch")  # a tensor exists only where its module was imported
    if torch is None or not isinstance(first, torch.Tensor):
        return False
    if first.device.type == "cpu":
        kinds = {torch.float32, torch.float16}
        if os.environ.get("TRITON_INTERPRET") != "1":
            return False
    else:
        kinds = {torch.float32, torch.float16, torch.bfloat16}
    return first.dtype in kinds and all(tensor.device == first.device for tensor in others)
