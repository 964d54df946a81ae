"""Rotary positions: pairs of numbers turned by an angle that grows with the position."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Rotation(Protocol):
    """Turns queries and keys of the tokens of a pass."""

    def __call__(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Turn both, ``[token, head, number]``; the arguments may be used up for it."""
        ...


class Rope(Protocol):
    """Knows the rotation of every position."""

    def at(self, positions: Tensor) -> Rotation:
        """The rotation for tokens at these positions."""
        ...


class Angles:
    """Cosines and sines by position. Number ``i`` of a head turns with number ``i + dim / 2``.

    They are computed in float32 for every type but float64, as they are where such models are
    trained; at position 8,000 a wider type would give visibly other angles.

    Args:
        base: How slowly the last pair turns.
        dim: Numbers in a head.
        dtype: Type of what is turned.
    """

    def __init__(self, base: float, dim: int, dtype: torch.dtype) -> None:
        if dim % 2:
            raise ValueError(f"a head of {dim} numbers has no pairs")
        precise = torch.promote_types(dtype, torch.float32)
        self._rates = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=precise) / dim))

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, ``[token, dim / 2]``."""
        angles = positions.to(self._rates.dtype).unsqueeze(1) * self._rates
        return angles.cos(), angles.sin()


class TorchRope:
    """Plain torch.

    Args:
        base: See :class:`Angles`.
        dim: See :class:`Angles`.
        dtype: See :class:`Angles`.
    """

    def __init__(self, base: float, dim: int, dtype: torch.dtype) -> None:
        self._angles = Angles(base, dim, dtype)

    def at(self, positions: Tensor) -> Rotation:
        """See :class:`Rope`."""
        cos, sin = (part.unsqueeze(1) for part in self._angles(positions))

        def turn(x: Tensor) -> Tensor:
            left, right = x.to(cos.dtype).chunk(2, dim=-1)
            turned = (left * cos - right * sin, right * cos + left * sin)
            return torch.cat(turned, dim=-1).to(x.dtype)

        return lambda query, key: (turn(query), turn(key))
