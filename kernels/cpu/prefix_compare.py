"""Compares whole stretches at once, as bytes or as slices, and looks closer where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from local_backend.kernels.registry import Implementation

_STRETCH = 1 << 16


def supports(a: Any, b: Any) -> bool:
    """Whether both are lists, both tuples, or both buffers of the same integer type."""
    if type(a) is type(b) and isinstance(a, list | tuple):
        return True
    mine, theirs = _view(a), _view(b)
    return mine is not None and theirs is not None and mine.format == theirs.format


def prefix_compare(a: Any, b: Any) -> int:
    """Return the length of the common prefix."""
    mine, theirs = _view(a), _view(b)
    if mine is None or theirs is None:
        return _of_slices(a, b)
    size = mine.itemsize
    return _of_bytes(mine.cast("B"), theirs.cast("B")) // size


def _view(value: Any) -> memoryview | None:
    """A flat view of a buffer of integers; ``None`` for anything else."""
    try:
        view = memoryview(value)
    except TypeError:
        return None
    if view.ndim == 1 and view.contiguous and view.format in _INTEGERS:
        return view
    return None


_INTEGERS = frozenset("bBhHiIlLqQ")


def _of_bytes(a: memoryview, b: memoryview) -> int:
    end = min(len(a), len(b))
    for start in range(0, end, _STRETCH):
        stop = min(start + _STRETCH, end)
        mine, theirs = bytes(a[start:stop]), bytes(b[start:stop])
        if mine != theirs:
            differing = int.from_bytes(mine, "little") ^ int.from_bytes(theirs, "little")
            return start + ((differing & -differing).bit_length() - 1) // 8
    return end


def _of_slices(a: Sequence[int], b: Sequence[int]) -> int:
    """Halve the stretch that must hold the first difference."""
    low, high = 0, min(len(a), len(b))
    step = 64
    while low < high:
        stop = min(low + step, high)
        if a[low:stop] == b[low:stop]:
            low = stop
            step *= 2
        elif stop - low == 1:
            return low
        else:
            high = stop
            step = (stop - low) // 2
    return low


IMPLEMENTATION = Implementation(
    operation="prefix_compare",
    backend="cpu",
    function=prefix_compare,
    priority=20,
    supports=supports,
)
