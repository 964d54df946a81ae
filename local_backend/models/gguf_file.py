"""Files of weights in the GGUF format, whole or in pieces.

The header is read here: the reader of the ``gguf`` package makes an array object of every string in
it and takes seconds for a vocabulary. What quantised rows mean comes from that package.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from local_backend._lazy import need
from local_backend.errors import WeightsError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = "BbHhIif?"  # by type number, 0 to 7
_WIDE_SCALARS = {10: "Q", 11: "q", 12: "d"}
_MOST_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor is in a file.

    Attributes:
        shape: Row-major, the longest stride first.
        kind: Number of its quantisation.
        start: First byte, counted over all pieces.
        size: Number of bytes.
    """

    shape: tuple[int, ...]
    kind: int
    start: int
    size: int


class GgufFile:
    """A file of weights. Nothing but its header is read until a tensor is asked for.

    Args:
        pieces: The file, or the pieces that it was cut into, in order.

    Raises:
        WeightsError: It is none, or it is damaged.
        MissingPackageError: The ``gguf`` package is not installed.
    """

    def __init__(self, pieces: Sequence[Path]) -> None:
        self.pieces = tuple(pieces)
        self._quants = need("gguf.quants", "reading weights")
        self._types = need("gguf.constants", "reading weights")
        self._maps = [_map(piece) for piece in self.pieces]
        self.size = sum(len(view) for view in self._maps)
        header = _Header(self._maps[0], self.pieces[0])
        try:
            self.metadata: Mapping[str, Any] = header.metadata()
            self.tensors: Mapping[str, TensorInfo] = self._tensors(header)
        except (struct.error, UnicodeDecodeError, KeyError, ValueError, MemoryError) as error:
            raise WeightsError(
                f"{self.pieces[0].name}: the header is damaged near byte {header.at} ({error})"
            ) from error

    def digest(self) -> str:
        """SHA-256 of the file, all pieces together."""
        found = hashlib.sha256()
        for view in self._maps:
            found.update(view)
        return found.hexdigest()

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor with its quantisation undone.

        Raises:
            WeightsError: There is no such tensor.
        """
        if name not in self.tensors:
            raise WeightsError(f"{self.pieces[0].name} holds no tensor {name!r}")
        info = self.tensors[name]
        raw = np.frombuffer(self._bytes(info.start, info.size), dtype=np.uint8)
        kind = self._types.GGMLQuantizationType(info.kind)
        rows = self._quants.dequantize(raw.reshape(*info.shape[:-1], -1), kind)
        found: npt.NDArray[np.float32] = np.asarray(rows, dtype=np.float32).reshape(info.shape)
        return found

    def _bytes(self, start: int, size: int) -> bytes:
        parts = []
        for view in self._maps:
            if size and start < len(view):
                part = view[start : start + size]
                parts.append(part)
                size -= len(part)
                start = 0
            else:
                start = max(0, start - len(view))
        return b"".join(parts)

    def _tensors(self, header: _Header) -> dict[str, TensorInfo]:
        entries = [header.tensor() for _ in range(header.tensors)]
        alignment = int(self.metadata.get("general.alignment", 32))
        data = -(-header.at // alignment) * alignment
        found: dict[str, TensorInfo] = {}
        for name, shape, kind, offset in entries:
            size = self._size(shape, kind)
            if name in found or data + offset + size > self.size:
                raise ValueError(f"tensor {name!r} is there twice or reaches beyond the end")
            found[name] = TensorInfo(shape, kind, data + offset, size)
        return found

    def _size(self, shape: tuple[int, ...], kind: int) -> int:
        elements, size = self._types.GGML_QUANT_SIZES[self._types.GGMLQuantizationType(kind)]
        if shape[-1] % elements:
            raise ValueError(f"rows of {shape[-1]} numbers cannot be of quantisation {kind}")
        total = size * (shape[-1] // elements)
        for dimension in shape[:-1]:
            total *= dimension
        return int(total)


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be read: {error}") from error


class _Header:
    """A cursor over the header."""

    def __init__(self, view: mmap.mmap, path: Path) -> None:
        self._view = view
        self.at = 24
        if len(view) < self.at or view[:4] != _MAGIC:
            raise WeightsError(f"{path} is no GGUF file")
        version, self.tensors, self.entries = struct.unpack_from("<IQQ", view, 4)
        if version not in _VERSIONS:
            raise WeightsError(f"{path} has version {version} of the format; 2 and 3 can be read")

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self.entries):
            name = self._string()
            found[name] = self._value(self._number("I"))
        return found

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dimensions = self._number("I")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise ValueError(f"tensor {name!r} has {dimensions} dimensions")
        shape = tuple(self._number("Q") for _ in range(dimensions))[::-1]
        return name, shape, self._number("I"), self._number("Q")

    def _number(self, code: str) -> Any:
        (found,) = struct.unpack_from("<" + code, self._view, self.at)
        self.at += struct.calcsize("<" + code)
        return found

    def _string(self) -> str:
        size = self._number("Q")
        text = self._view[self.at : self.at + size]
        if len(text) != size:
            raise ValueError("a text reaches beyond the end")
        self.at += size
        return text.decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        return self._number(_code(kind))

    def _array(self) -> list[Any]:
        kind, count = self._number("I"), self._number("Q")
        if count > len(self._view):
            raise ValueError(f"a list of {count} entries")
        if kind in (_STRING, _ARRAY):
            return [self._value(kind) for _ in range(count)]
        code = f"<{count}{_code(kind)}"
        found = struct.unpack_from(code, self._view, self.at)
        self.at += struct.calcsize(code)
        return list(found)


def _code(kind: int) -> str:
    return _SCALARS[kind] if kind < len(_SCALARS) else _WIDE_SCALARS[kind]
