"""Paired bootstrap intervals in whole numbers, so that money stays exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeVar

RESAMPLES: Final = 10_000
LEVEL: Final = 0.95
# So many draws take about two seconds; beyond, fewer resamples are drawn, never under 2,000.
_MOST_DRAWS: Final = 20_000_000
_FEWEST: Final = 2_000

Number = TypeVar("Number", int, float)


def resamples_for(pairs: int, wanted: int = RESAMPLES) -> int:
    """Say how many resamples are drawn for so many pairs."""
    return min(wanted, max(_FEWEST, _MOST_DRAWS // max(1, pairs)))


def resampled_sums(
    rows: Sequence[tuple[int, ...]], resamples: int, rng: Random
) -> list[tuple[int, ...]]:
    """Draw rows with replacement, as many as there are, and add their columns up.

    Args:
        rows: One row a pair; whole numbers from 0.
        resamples: How often.
        rng: Source of randomness.

    Returns:
        One tuple of column sums a resample.
    """
    if not rows:
        return []
    columns = len(rows[0])
    largest = max(max(row) for row in rows)
    # All columns in one integer, so that one addition adds them all.
    width = (largest * len(rows)).bit_length() + 1
    packed = [sum(value << (width * place) for place, value in enumerate(row)) for row in rows]
    mask = (1 << width) - 1
    count = len(packed)
    found: list[tuple[int, ...]] = []
    for _ in range(resamples):
        total = sum(rng.choices(packed, k=count))
        found.append(tuple((total >> (width * place)) & mask for place in range(columns)))
    return found


def percentile_interval(values: Sequence[Number], level: float = LEVEL) -> tuple[Number, Number]:
    """Return the values between which the middle ``level`` of all values lies."""
    ordered = sorted(values)
    outside = (1 - level) / 2
    low = math.floor(outside * len(ordered))
    high = math.ceil((1 - outside) * len(ordered)) - 1
    return ordered[low], ordered[max(low, high)]


def interval_of(
    sums: Sequence[tuple[int, ...]], statistic: Callable[[tuple[int, ...]], Number | None]
) -> tuple[Number, Number] | None:
    """Bound a statistic of the column sums; ``None`` where it exists in too few resamples."""
    values = [value for item in sums if (value := statistic(item)) is not None]
    return percentile_interval(values) if len(values) * 10 >= len(sums) * 9 and values else None


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which a share of the values lies, between neighbours in proportion."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
