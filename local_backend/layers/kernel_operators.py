"""The operations of ``local_backend.kernels``: compiled where possible, else their references."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from local_backend.kernels import functional as kernels
from local_backend.kernels.deferred import current, deferred
from local_backend.kernels.registry import bind
from local_backend.kernels.threads import native_status
from local_backend.kernels.weights import Weight
from local_backend.layers.attention import Attention
from local_backend.layers.context import Batch
from local_backend.layers.memory import LayerPages
from local_backend.layers.operators import Activation, Linear, Unary
from local_backend.layers.rope import Angles, Rope, Rotation, TorchRope

_COMPILED = "local_backend.kernels.cpu."
# Passes of more rows take long enough for what Python does between them not to matter, and
# everything that is computed on the way must be kept until the end.
_FEW_ROWS = 32


class _Often:
    """An operation that is called for every layer of every pass.

    Its first call is checked; later ones with the same type go straight to what was chosen. One
    object serves one device.

    Args:
        name: Of the operation.
        checked: The operation itself, with the arguments in the same order.
    """

    def __init__(self, name: str, checked: Callable[..., Any]) -> None:
        self._name = name
        self._checked = checked
        self._chosen: dict[torch.dtype, Callable[..., Any]] = {}

    def __call__(self, first: Tensor, *rest: Any) -> Any:
        """Compute; all arguments by position."""
        chosen, later = self._chosen.get(first.dtype), current()
        if later is not None and (chosen is None or not chosen.__module__.startswith(_COMPILED)):
            later.run()  # what is called now looks at tensors at once
        if chosen is None:
            found = self._checked(first, *rest)
            self._chosen[first.dtype] = bind(self._name, first, *rest)
        else:
            found = chosen(first, *rest)
        if later is not None:
            later.keep(found, first, rest)
        return found


class KernelAttention:
    """Attention that reads the pages where they are."""

    def __init__(self) -> None:
        self._store = _Often("reshape_and_cache", kernels.reshape_and_cache)
        self._decode = _Often("paged_attention_decode", _decode)
        self._prefill = _Often("paged_attention_prefill", _prefill)

    def write(self, key: Tensor, value: Tensor, pages: LayerPages, batch: Batch) -> None:
        """See :class:`local_backend.layers.attention.Attention`."""
        self._store(key, value, pages.key, pages.value, batch.slots)

    def attend(
        self, query: Tensor, pages: LayerPages, batch: Batch, scale: float, window: int = 0
    ) -> Tensor:
        """See :class:`local_backend.layers.attention.Attention`."""
        keys, values, tables, lengths = pages.key, pages.value, batch.tables, batch.lengths
        seen = window or None
        found: Tensor
        if batch.is_decode:
            found = self._decode(query, keys, values, tables, lengths, scale, seen)
        else:
            starts = batch.offsets
            found = self._prefill(query, keys, values, tables, lengths, starts, scale, True, seen)
        return found


def _decode(*arguments: Any) -> Tensor:
    *tensors, scale, window = arguments
    return kernels.paged_attention_decode(*tensors, scale=scale, window=window)


def _prefill(*arguments: Any) -> Tensor:
    *tensors, scale, causal, window = arguments
    return kernels.paged_attention_prefill(*tensors, scale=scale, causal=causal, window=window)


def _norm(x: Tensor, weight: Tensor, eps: float, residual: None, offset: float) -> Tensor:
    return kernels.rms_norm(x, weight, eps, residual=residual, offset=offset)


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
        self._room = kernels.Room()
        multiply = kernels.tiled_linear if exact else kernels.linear

        def checked(x: Tensor, weight: Weight, residual: Tensor | None, name: str | None) -> Tensor:
            return multiply(x, weight, residual=residual, activation=name)

        self._multiply = _Often("tiled_linear" if exact else "linear", checked)
        self._norm = _Often("rms_norm", _norm)

    def together(self, rows: int) -> AbstractContextManager[object]:
        """See :class:`local_backend.layers.operators.Operators`."""
        return deferred() if rows <= _FEW_ROWS and current() is None else nullcontext()

    def linear(self, weight: Tensor) -> Linear:
        """See :class:`local_backend.layers.operators.Operators`."""
        packed, multiply = kernels.pack_weight(weight, room=self._room), self._multiply
        return lambda x, residual=None: multiply(x, packed, residual, None)

    def gated(self, gate: Tensor, up: Tensor, activation: Activation) -> Unary:
        """See :class:`local_backend.layers.operators.Operators`."""
        packed = kernels.pack_weight(torch.cat([gate, up]), is_gated=True, room=self._room)
        multiply, name = self._multiply, str(activation)
        return lambda x: multiply(x, packed, None, name)

    def norm(self, weight: Tensor, eps: float) -> Unary:
        """See :class:`local_backend.layers.operators.Operators`."""
        norm = self._norm

        def divide(x: Tensor) -> Tensor:
            found: Tensor
            if x.ndim == 2:
                found = norm(x, weight, eps, None, 0.0)
            else:
                found = norm(x.reshape(-1, x.shape[-1]), weight, eps, None, 0.0).view(x.shape)
            return found

        return divide

    def rope(self, base: float, dim: int, dtype: torch.dtype) -> Rope:
        """See :class:`local_backend.layers.operators.Operators`."""
        # The kernel's tables are float32, too coarse for this type.
        return TorchRope(base, dim, dtype) if dtype == torch.float64 else _KernelRope(base, dim)


def _rope(query: Tensor, *rest: Any) -> None:
    *tensors, is_interleaved = rest
    kernels.rope(query, *tensors, is_interleaved=is_interleaved)


class _KernelRope:
    def __init__(self, base: float, dim: int) -> None:
        self._angles = Angles(base, dim, torch.float32)
        self._turn = _Often("rope", _rope)

    def at(self, positions: Tensor) -> Rotation:
        cos, sin = self._angles(positions)
        # The tables hold the tokens of this pass, so each looks itself up.
        own = torch.arange(len(positions), dtype=torch.int32, device=positions.device)

        def turn(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
            self._turn(query, key, own, cos, sin, False)
            return query, key

        return turn
