"""Rotary position embedding, in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from local_backend.kernels.ops import _checks
from local_backend.kernels.registry import Operation, run

if TYPE_CHECKING:
    import torch

NAME = "rope"


def rope_tables(places: int, turned: int, base: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines, float32 [places, turned / 2], of angles computed in float64.

    Pair i at position p turns by p * base ** (-2i / turned).
    """
    import torch

    exponents = torch.arange(0, turned, 2, dtype=torch.float64) / turned
    angles = torch.arange(places, dtype=torch.float64)[:, None] * base**-exponents
    return angles.cos().float(), angles.sin().float()


def rope(
    query: torch.Tensor,
    key: torch.Tensor,
    positions: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    *,
    is_interleaved: bool = False,
) -> None:
    """Turn queries and keys by their positions, in place.

    Args:
        query: [tokens, heads, head_dim].
        key: [tokens, kv_heads, head_dim].
        positions: int32 [tokens].
        cosines: float32 [places, turned / 2], from :func:`rope_tables`; the first ``turned``
            elements of a head turn.
        sines: Like ``cosines``.
        is_interleaved: Whether neighbours form a pair; else element i and element turned / 2 + i
            do.
    """
    for tensor in (query, key):
        fits = tensor.ndim == 3 and tensor.shape[0] == len(positions)
        _checks.need(
            fits and tensor.shape[2] >= 2 * cosines.shape[1],
            "rope takes [tokens, heads, head_dim] with a position a token: ",
            x=tensor,
            positions=positions,
            cosines=cosines,
        )
    _checks.need(
        _checks.are_int32(positions) and cosines.shape == sines.shape,
        f"positions must be int32, not {positions.dtype}, and the tables of one shape",
    )
    _checks.need(_checks.are_float32(cosines, sines), "tables must be float32")
    run(NAME, query, key, positions, cosines, sines, is_interleaved)


def reference(
    query: torch.Tensor,
    key: torch.Tensor,
    positions: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    is_interleaved: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """In float32 (float64 stays), rounded once."""
    import torch

    half = cosines.shape[1]
    at = positions.long()
    _checks.need_range(at, len(cosines), "position")
    for x in (query, key):
        dtype = torch.promote_types(x.dtype, torch.float32)
        cosine, sine = (table[at].to(dtype)[:, None] for table in (cosines, sines))
        if is_interleaved:
            a, b = x[..., : 2 * half : 2], x[..., 1 : 2 * half : 2]
        else:
            a, b = x[..., :half], x[..., half : 2 * half]
        turned = (
            a.to(dtype) * cosine - b.to(dtype) * sine,
            b.to(dtype) * cosine + a.to(dtype) * sine,
        )
        a.copy_(turned[0])
        b.copy_(turned[1])
    return query, key


def cases() -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Both kinds of pairs, partial turns, odd sizes, views, far positions, no tokens."""
    import torch

    generator = torch.Generator().manual_seed(9)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        for tokens, heads, kv_heads, head_dim, turned, is_interleaved in (
            (1, 1, 1, 2, 2, False),
            (5, 3, 1, 64, 64, False),
            (7, 4, 2, 20, 10, False),
            (6, 2, 2, 32, 32, True),
            (0, 2, 1, 16, 16, False),
            (11, 9, 3, 64, 48, True),
        ):
            cosines, sines = rope_tables(8192, turned, 100_000.0)
            both = torch.randn((tokens, heads + kv_heads, head_dim), generator=generator).to(dtype)
            query, key = both[:, :heads], both[:, heads:]
            positions = torch.randint(0, 8192, (tokens,), generator=generator, dtype=torch.int32)
            positions[:1] = 8191
            right = reference(
                *(query.clone().double(), key.clone().double(), positions, cosines, sines),
                is_interleaved,
            )
            yield (query, key, positions, cosines, sines, is_interleaved), right


OPERATION = Operation(
    name=NAME,
    contract=(
        "query [tokens, heads, head_dim] and key [tokens, kv_heads, head_dim], last dimension "
        "contiguous, changed in "
        "place; int32 positions [tokens]; float32 cosines and sines [places, turned / 2]; whether "
        "pairs are neighbours."
    ),
    reference=reference,
    cases=cases,
    requires=("torch",),
    agrees=_checks.close,
)
