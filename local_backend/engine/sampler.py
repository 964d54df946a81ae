"""Draws the next token.

The random number of a token follows from the seed of its request and its place in the answer, and
from nothing else: two requests with the same seed draw the same numbers, whatever runs beside them
and however often they were interrupted. What differs between their answers is then due to their
prompts (common random numbers).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from local_backend.engine.api import Sampling
from local_backend.errors import SamplingError

_BITS = 53


def uniform(seed: int, place: int) -> float:
    """A number from 0 up to, not including, 1 for a place in the answer to a seed."""
    digest = hashlib.blake2b(f"{seed}:{place}".encode(), digest_size=8, person=b"kv-sample")
    return (int.from_bytes(digest.digest(), "little") >> (64 - _BITS)) / 2.0**_BITS


def draw(scores: Tensor, sampling: Sampling, place: int) -> int:
    """Draw one token.

    Args:
        scores: ``[vocabulary]``.
        sampling: How; the temperature is above 0.
        place: Tokens of the answer before it.

    Raises:
        SamplingError: The scores are no numbers.
    """
    kept = scores.double() / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < kept.numel():
        # Several may be as likely as the last one kept; the first by id stay.
        order = torch.sort(kept, descending=True, stable=True).indices[sampling.top_k :]
        kept[order] = -torch.inf
    weights = torch.softmax(kept, dim=0)
    if sampling.top_p < 1.0:
        ranked, order = torch.sort(weights, descending=True, stable=True)
        # A token stays while those before it have less than the mass: at least the first does.
        before = ranked.cumsum(0) - ranked
        weights[order[before >= sampling.top_p]] = 0.0
    sums = weights.cumsum(0)
    total = float(sums[-1])
    if not total > 0.0:
        raise SamplingError("the scores of the model are no numbers")
    mark = torch.tensor(uniform(sampling.seed, place) * total, dtype=sums.dtype)
    found = int(torch.searchsorted(sums, mark, right=True))
    # Rounding may put the mark at the very end, behind the last token that has any weight.
    return found if found < sums.numel() else int(weights.nonzero()[-1])


def choose(scores: Tensor, wanted: Sequence[tuple[Sampling, int]]) -> list[int | None]:
    """The next token of each row; None where a row holds no numbers.

    Args:
        scores: ``[row, vocabulary]``.
        wanted: For each row, how to draw and the tokens of the answer so far.
    """
    best = scores.argmax(dim=-1)
    is_number = scores.gather(1, best.unsqueeze(1)).isfinite().flatten().tolist()
    found: list[int | None] = []
    for row, (token, (sampling, place)) in enumerate(zip(best.tolist(), wanted, strict=True)):
        if not is_number[row]:
            found.append(None)
        elif sampling.temperature <= 0.0:
            found.append(token)
        else:
            found.append(draw(scores[row], sampling, place))
    return found
