"""Softmax-weighted sums over records that come in pieces, without a table of all scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class RunningSoftmax:
    """Highest score, sum of weights and weighted sum of values so far, for any number of queries.

    Weights are relative to the highest score so far. When a higher one comes, what was summed is
    scaled down by the same factor; nothing is divided before the end.

    Attributes:
        highest: [..., queries]: minus infinity while a query has seen no score.
        weight: [..., queries].
        total: [..., queries, width].
    """

    def __init__(self, shape: tuple[int, ...], width: int, dtype: torch.dtype, device: str) -> None:
        import torch

        self.highest = torch.full(shape, -torch.inf, dtype=dtype, device=device)
        self.weight = torch.zeros(shape, dtype=dtype, device=device)
        self.total = torch.zeros((*shape, width), dtype=dtype, device=device)

    def add(self, scores: torch.Tensor, values: torch.Tensor) -> None:
        """Take in some records.

        Args:
            scores: [..., queries, records]; minus infinity hides a record from a query.
            values: [..., records, width].
        """
        import torch

        if not scores.shape[-1]:
            return
        highest = torch.maximum(self.highest, scores.amax(-1))
        # Where all is hidden both are minus infinity, and their difference would be no number.
        base = torch.where(highest.isinf(), 0.0, highest)
        keep = torch.exp(self.highest - base)
        weights = torch.exp(scores - base[..., None])
        self.weight = self.weight * keep + weights.sum(-1)
        self.total = self.total * keep[..., None] + weights @ values
        self.highest = highest

    def result(self) -> torch.Tensor:
        """Return the weighted means; zeros for a query that saw nothing."""
        import torch

        mean = self.total / self.weight[..., None]
        return torch.where(self.weight[..., None] == 0, 0.0, mean)
