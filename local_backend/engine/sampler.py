"""Draws the next token.

The random number of a token follows from the seed of its request and its place in the answer, and
from nothing else: two requests with the same seed draw the same numbers, whatever runs beside them
and however often they were interrupted. What differs between their answers is then due to their
prompts (common random numbers).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from local_backend.engine.api import Sampling

_BITS = 53
# Tokens among which the mass of `top_p` is looked for first.
_LIKELY = 256
# Below it scores would overflow; the likeliest token is certain long before.
_COLDEST = 1e-6


def uniform(seed: int, place: int) -> float:
    """A number from 0 up to, not including, 1 for a place in the answer to a seed."""
    digest = hashlib.blake2b(f"{seed}:{place}".encode(), digest_size=8, person=b"kv-sample")
    return (int.from_bytes(digest.digest(), "little") >> (64 - _BITS)) / 2.0**_BITS


def draw(scores: Tensor, sampling: Sampling, place: int) -> int:
    """Draw one token.

    Args:
        scores: ``[vocabulary]``; the largest is a number.
        sampling: How; the temperature is above 0.
        place: Tokens of the answer before it.
    """
    values, ids = scores, None
    if sampling.top_k is not None and sampling.top_k < values.numel():
        ids = _largest(values, sampling.top_k)
        values = values[ids]
    weights = torch.softmax(values / max(sampling.temperature, _COLDEST), dim=0)
    if sampling.top_p < 1.0:
        weights = _nucleus(weights, sampling.top_p)
    # Summed one by one, so that the number of threads changes nothing.
    sums = weights.cumsum(0, dtype=torch.float64)
    mark = sums[-1:] * uniform(sampling.seed, place)
    found = int(torch.searchsorted(sums, mark, right=True))
    if found == sums.numel():  # rounding put the mark at the very end
        found = int(weights.nonzero()[-1])
    return found if ids is None else int(ids[found])


def _largest(values: Tensor, count: int) -> Tensor:
    """Places of the largest values, in order; of equal ones the first."""
    largest, places = values.topk(count)
    least = largest[-1]
    if int((values >= least).sum()) == count:
        return places.sort().values
    above = (values > least).nonzero().flatten()
    equal = (values == least).nonzero().flatten()
    return torch.cat([above, equal[: count - len(above)]]).sort().values


def _nucleus(weights: Tensor, mass: float) -> Tensor:
    """The weights of the likeliest tokens that have some mass together; others become 0."""
    ids = torch.arange(weights.numel())
    if weights.numel() > _LIKELY:
        # Sorting all of them takes long, and the likeliest usually have the mass.
        some = _largest(weights, _LIKELY)
        if float(weights[some].sum()) > mass:
            ids = some
    ranked, order = torch.sort(weights[ids], descending=True, stable=True)
    # A token stays while those before it have less than the mass: at least the first does.
    before = ranked.cumsum(0, dtype=torch.float64) - ranked
    kept = ids[order[before < mass]]
    found = torch.zeros_like(weights)
    found[kept] = weights[kept]
    return found


def choose(scores: Tensor, wanted: Sequence[tuple[Sampling, int]]) -> list[int | None]:
    """The next token of each row; None where a row holds no numbers.

    Args:
        scores: ``[row, vocabulary]``, float32 or float64.
        wanted: For each row, how to draw and the tokens of the answer so far.
    """
    # numpy's search is twenty times as fast. Both take the first of equals, and NaN before all.
    rows = scores.cpu().numpy()
    found: list[int | None] = []
    for row, (best, (sampling, place)) in enumerate(zip(rows.argmax(axis=1), wanted, strict=True)):
        if not math.isfinite(rows[row, best]):
            found.append(None)
        elif sampling.temperature <= 0.0:
            found.append(int(best))
        else:
            found.append(draw(scores[row], sampling, place))
    return found
