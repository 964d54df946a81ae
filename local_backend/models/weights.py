"""Where the tensors of a model come from."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from local_backend.errors import WeightsError
from local_backend.models.gguf_file import GgufFile


class FileWeights:
    """Tensors of a file, their quantisation undone.

    Args:
        file: The file.
        dtype: Type that the model computes in.
    """

    def __init__(self, file: GgufFile, dtype: torch.dtype) -> None:
        self._file = file
        self._dtype = dtype
        self.identity = f"sha256:{file.digest()}"

    def __contains__(self, name: str) -> bool:
        return name in self._file.tensors

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """See :class:`local_backend.models.base.Weights`."""
        info = self._file.tensors.get(name)
        if info is not None and info.shape != shape:
            raise WeightsError(f"tensor {name!r} has the shape {info.shape}, not {shape}")
        return torch.from_numpy(self._file.read(name).copy()).to(self._dtype)


class DrawnWeights:
    """Tensors drawn from a seed. Each depends on the seed and its name alone.

    Args:
        seed: The seed.
        dtype: Type that the model computes in; the numbers are drawn in float64 and rounded.
        label: Distinguishes models of one seed.
    """

    def __init__(self, seed: int, dtype: torch.dtype, label: str) -> None:
        self._dtype = dtype
        self.identity = f"seed:{seed}/{label}"

    def __contains__(self, name: str) -> bool:
        return name != "output.weight"

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """See :class:`local_backend.models.base.Weights`."""
        digest = hashlib.blake2b(f"{self.identity}/{name}".encode(), digest_size=8).digest()
        source = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
        drawn = torch.randn(shape, generator=source, dtype=torch.float64)
        if len(shape) == 1:  # of a norm
            return (1 + 0.1 * drawn).to(self._dtype)
        # Of unit gain, so that attention is neither flat nor on one token.
        gain = 1.0 if name.startswith("token_embd") else 1.5 / shape[1] ** 0.5
        return (drawn * gain).to(self._dtype)
