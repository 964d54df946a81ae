"""The operations of ``local_backend.kernels``: compiled where possible, else their references."""

from __future__ import annotations

import torch
from torch import Tensor

from local_backend.kernels import functional as kernels
from local_backend.kernels.threads import native_status
from local_backend.layers.attention import Attention
from local_backend.layers.context import Batch
from local_backend.layers.memory import LayerPages
from local_backend.layers.operators import Activation, Linear, Unary
from local_backend.layers.rope import Angles, Rope, Rotation, TorchRope


class KernelAttention:
    """Attention that reads the pages where they are."""

    def write(self, key: Tensor, value: Tensor, pages: LayerPages, batch: Batch) -> None:
        """See :class:`local_backend.layers.attention.Attention`."""
        kernels.reshape_and_cache(key, value, pages.key, pages.value, batch.slots)

    def attend(
        self, query: Tensor, pages: LayerPages, batch: Batch, scale: float, window: int = 0
    ) -> Tensor:
        """See :class:`local_backend.layers.attention.Attention`."""
        keys, values, tables, lengths = pages.key, pages.value, batch.tables, batch.lengths
        seen = window or None
        if batch.is_decode:
            return kernels.paged_attention_decode(
                query, keys, values, tables, lengths, scale=scale, window=seen
            )
        return kernels.paged_attention_prefill(
            query, keys, values, tables, lengths, batch.offsets, scale=scale, window=seen
        )


class KernelOperators:
    """See :class:`local_backend.layers.operators.Operators`.

    Args:
        exact: Whether a row must give the same bits however it is batched. It does where the
            kernels are compiled; :attr:`is_exact` says whether they are.
    """

    def __init__(self, *, exact: bool = True) -> None:
        self.attention: Attention = KernelAttention()
        self.is_exact = exact and native_status().startswith("compiled")
        self.name = f"kernels{'-exact' if exact else ''} ({native_status().split(',')[0]})"
        self._multiply = kernels.tiled_linear if exact else kernels.linear

    def linear(self, weight: Tensor) -> Linear:
        """See :class:`local_backend.layers.operators.Operators`."""
        packed, multiply = kernels.pack_weight(weight), self._multiply
        return lambda x, residual=None: multiply(x, packed, residual=residual)

    def gated(self, gate: Tensor, up: Tensor, activation: Activation) -> Unary:
        """See :class:`local_backend.layers.operators.Operators`."""
        packed = kernels.pack_weight(torch.cat([gate, up]), is_gated=True)
        multiply, name = self._multiply, str(activation)
        return lambda x: multiply(x, packed, activation=name)

    def norm(self, weight: Tensor, eps: float) -> Unary:
        """See :class:`local_backend.layers.operators.Operators`."""

        def divide(x: Tensor) -> Tensor:
            return kernels.rms_norm(x.reshape(-1, x.shape[-1]), weight, eps).view(x.shape)

        return divide

    def rope(self, base: float, dim: int, dtype: torch.dtype) -> Rope:
        """See :class:`local_backend.layers.operators.Operators`."""
        # The kernel's tables are float32, too coarse for this type.
        return TorchRope(base, dim, dtype) if dtype == torch.float64 else _KernelRope(base, dim)


class _KernelRope:
    def __init__(self, base: float, dim: int) -> None:
        self._angles = Angles(base, dim, torch.float32)

    def at(self, positions: Tensor) -> Rotation:
        cos, sin = self._angles(positions)
        # The tables hold the tokens of this pass, so each looks itself up.
        own = torch.arange(len(positions), dtype=torch.int32, device=positions.device)

        def turn(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
            kernels.rope(query, key, own, cos, sin)
            return query, key

        return turn
