"""Weights of linear layers in the form that the kernels read fastest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_backend.kernels.cpu import _native
from local_backend.kernels.errors import ShapeError
from local_backend.kernels.memory import Room, aligned_bytes

if TYPE_CHECKING:
    import torch

_HALF = 16  # outputs of a gate that lie beside the 16 that they multiply


@dataclass(frozen=True, eq=False)
class Weight:
    """A weight matrix [outputs, inputs], packed where the compiled kernels can read it.

    Attributes:
        outputs: Rows of the matrix.
        inputs: Columns of the matrix.
        dtype: Type of its elements.
        is_gated: Whether the first half of the outputs are gates of the second half.
        plain: The matrix; ``None`` where it is packed.
        packed: The bytes that the compiled kernels read; ``None`` where there are none.
    """

    outputs: int
    inputs: int
    dtype: torch.dtype
    is_gated: bool
    plain: torch.Tensor | None
    packed: torch.Tensor | None

    def matrix(self) -> torch.Tensor:
        """Return the matrix as it was; unpacked anew at every call."""
        if self.plain is not None:
            return self.plain
        return _unpacked(self)


def pack_weight(
    matrix: torch.Tensor, *, is_gated: bool = False, room: Room | None = None
) -> Weight:
    """Bring a matrix into the form for the linear operations; the matrix itself is not kept.

    On the CPU in float32 and bfloat16 that form takes no more memory than the matrix (rows are
    filled up to 32, columns of bfloat16 too). Elsewhere, and without compiled kernels, the matrix
    is used as it is.

    Args:
        matrix: [outputs, inputs], as in ``torch.nn.Linear``.
        is_gated: Whether rows [0, outputs / 2) are the gate and the rest the factor of a gated
            layer, so that ``activation`` can be applied with the product.
        room: Where its packed form lies beside that of other weights; memory of its own where not
            given.
    """
    import torch

    if matrix.ndim != 2 or (is_gated and matrix.shape[0] % 2):
        raise ShapeError(
            f"a weight is [outputs, inputs], outputs even if gated: {tuple(matrix.shape)}"
        )
    outputs, inputs = matrix.shape
    kinds = {torch.float32: _native.FLOAT32, torch.bfloat16: _native.BFLOAT16}
    kind = kinds.get(matrix.dtype)
    found = _native.native()
    if matrix.device.type != "cpu" or kind is None or found.library is None or not matrix.numel():
        return Weight(outputs, inputs, matrix.dtype, is_gated, matrix.contiguous(), None)
    rows = _interleaved(matrix) if is_gated else matrix.contiguous()
    take = aligned_bytes if room is None else room.take
    packed = take(found.packed_bytes(rows.shape[0], inputs, kind))
    found.call(
        "ck_pack",
        _native.PackArguments(
            *(rows.data_ptr(), packed.data_ptr(), rows.stride(0), rows.shape[0], inputs, kind, 0)
        ),
    )
    return Weight(outputs, inputs, matrix.dtype, is_gated, None, packed)


def _unpacked(weight: Weight) -> torch.Tensor:
    import torch

    if weight.packed is None:
        raise ShapeError("a weight has neither a matrix nor packed bytes")
    kind = _native.BFLOAT16 if weight.dtype is torch.bfloat16 else _native.FLOAT32
    outputs = weight.outputs
    if weight.is_gated:
        outputs = 2 * _HALF * -(-(outputs // 2) // _HALF)
    rows = torch.empty((outputs, weight.inputs), dtype=weight.dtype)
    _native.native().call(
        "ck_pack",
        _native.PackArguments(
            *(rows.data_ptr(), weight.packed.data_ptr(), rows.stride(0), outputs, weight.inputs),
            *(kind, 1),
        ),
    )
    if not weight.is_gated:
        return rows
    halves = rows.view(-1, 2, _HALF, weight.inputs).transpose(0, 1).flatten(1, 2)
    return halves[:, : weight.outputs // 2].flatten(0, 1)


def _interleaved(matrix: torch.Tensor) -> torch.Tensor:
    """16 gates, their 16 factors, the next 16 gates and so on; zeros fill up the last ones."""
    import torch

    half = matrix.shape[0] // 2
    filled = -(-half // _HALF) * _HALF
    halves = torch.zeros((2, filled, matrix.shape[1]), dtype=matrix.dtype)
    halves[:, :half] = matrix.view(2, half, -1)
    return halves.view(2, -1, _HALF, matrix.shape[1]).transpose(0, 1).reshape(2 * filled, -1)
