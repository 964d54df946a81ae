"""The operations that models are put together from, so that faster ones can be plugged in.

A model asks for its operations once, when it is built; an implementation may pack weights then.
What it hands out is called in every pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from local_backend._typing import override
from local_backend.layers.attention import Attention, GatherAttention, TiledAttention
from local_backend.layers.rope import Rope, TorchRope

Unary = Callable[[Tensor], Tensor]


class Activation(StrEnum):
    """What is applied to a gate."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


class Linear(Protocol):
    """A product with fixed weights."""

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Multiply the rows of ``x``, ``[token, number]``, and add the residual if there is one."""
        ...


class Operators(Protocol):
    """A set of implementations."""

    @property
    def name(self) -> str:
        """Says in reports and in the identity of cached pages what computed them."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether a row gives the same bits however it is batched, chunked or cached."""
        ...

    @property
    def attention(self) -> Attention:
        """Attention over pages."""
        ...

    def together(self, rows: int) -> AbstractContextManager[object]:
        """A block in which only operations are applied to tensors: they may run at its end.

        Args:
            rows: Tokens of the pass.
        """
        ...

    def linear(self, weight: Tensor) -> Linear:
        """A product with ``weight``, ``[output, input]``."""
        ...

    def gated(self, gate: Tensor, up: Tensor, activation: Activation) -> Unary:
        """``activation(x @ gate.T) * (x @ up.T)``."""
        ...

    def norm(self, weight: Tensor, eps: float) -> Unary:
        """Division by the root of the mean square of the last dimension, then ``weight``."""
        ...

    def rope(self, base: float, dim: int, dtype: torch.dtype) -> Rope:
        """Rotation by position."""
        ...


def root_mean_square(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm in at least float32, the result in the type of ``x``."""
    precise = x.to(torch.promote_types(x.dtype, torch.float32))
    scaled = precise * torch.rsqrt(precise.square().mean(dim=-1, keepdim=True) + eps)
    return (scaled * weight).to(x.dtype)


def activate(x: Tensor, activation: Activation) -> Tensor:
    """Apply an activation."""
    return F.silu(x) if activation is Activation.SILU else F.gelu(x, approximate="tanh")


class TorchOperators:
    """Plain torch: the reference for all others."""

    name = "torch"
    is_exact = False

    def __init__(self, attention: Attention | None = None) -> None:
        self.attention: Attention = attention or GatherAttention()

    def together(self, _rows: int) -> AbstractContextManager[object]:
        """See :class:`Operators`; everything runs at once."""
        return nullcontext()

    def linear(self, weight: Tensor) -> Linear:
        """See :class:`Operators`."""

        def multiply(x: Tensor, residual: Tensor | None = None) -> Tensor:
            y = F.linear(x, weight)
            return y if residual is None else y + residual

        return multiply

    def gated(self, gate: Tensor, up: Tensor, activation: Activation) -> Unary:
        """See :class:`Operators`."""
        both = self.linear(torch.cat([gate, up]))

        def multiply(x: Tensor) -> Tensor:
            opened, passed = both(x).chunk(2, dim=-1)
            return activate(opened, activation) * passed

        return multiply

    def norm(self, weight: Tensor, eps: float) -> Unary:
        """See :class:`Operators`."""
        precise = weight.to(torch.promote_types(weight.dtype, torch.float32))
        return lambda x: root_mean_square(x, precise, eps)

    def rope(self, base: float, dim: int, dtype: torch.dtype) -> Rope:
        """See :class:`Operators`."""
        return TorchRope(base, dim, dtype)


class ExactOperators(TorchOperators):
    """Results that do not depend on what else is in the pass, to the bit.

    Rows are filled up with zeros to tiles of a fixed number, and every product has the shape of one
    tile: a library that picks its method by the shape then picks the same one for every row.

    Args:
        tile: Rows in a tile.
    """

    name = "exact"
    is_exact = True

    def __init__(self, tile: int = 16) -> None:
        super().__init__(TiledAttention())
        self.tile = tile

    @override
    def linear(self, weight: Tensor) -> Linear:
        """See :class:`Operators`."""
        tile, outputs = self.tile, weight.shape[0]

        def multiply(x: Tensor, residual: Tensor | None = None) -> Tensor:
            rows = x.shape[0]
            padded = math.ceil(rows / tile) * tile
            full = x if padded == rows else F.pad(x, (0, 0, 0, padded - rows))
            y = x.new_empty((padded, outputs))
            for start in range(0, padded, tile):
                torch.mm(full[start : start + tile], weight.t(), out=y[start : start + tile])
            y = y[:rows]
            return y if residual is None else y + residual

        return multiply
