"""How many leading token ids two sequences share: what a prefix cache can reuse."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from local_backend.kernels.registry import Operation


def reference(a: Sequence[int], b: Sequence[int]) -> int:
    """Compare one id after the other."""
    length = 0
    for mine, theirs in zip(a, b, strict=False):
        if mine != theirs:
            break
        length += 1
    return length


def cases() -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield arguments and the right answer: empty, equal, nested, first, last, extreme values."""
    lists: list[tuple[list[int], list[int], int]] = [
        ([], [], 0),
        ([], [1], 0),
        ([1, 2, 3], [1, 2, 3], 3),
        ([1, 2, 3], [1, 2], 2),
        ([9, 2, 3], [1, 2, 3], 0),
        ([1, 2, 3], [1, 2, 4], 2),
        ([0, 0, 0], [0, 0, 256], 2),
        ([2**31 - 1, 1], [2**31 - 1, 2], 1),
    ]
    long = [number * 7 % 50_021 for number in range(200_000)]
    for place in (0, 1, 16_383, 16_384, 65_535, 199_999):
        changed = list(long)
        changed[place] += 1
        lists.append((long, changed, place))
    for a, b, right in lists:
        yield (a, b), right
        yield (tuple(a), tuple(b)), right
        yield (array("i", a), array("i", b)), right
        yield (array("q", a), array("q", b)), right
        yield (memoryview(array("I", a)), memoryview(array("I", b))), right
    yield (b"prefix", b"pretext"), 3
    yield (bytearray(b"same"), b"same and more"), 4


OPERATION = Operation(
    name="prefix_compare",
    contract="Two one-dimensional sequences of integers; the length of their common prefix.",
    reference=reference,
    cases=cases,
)
