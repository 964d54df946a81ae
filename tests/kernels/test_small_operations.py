"""Rotation, norm, storing and copying: their laws, and errors that change nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from local_backend.kernels import available
from local_backend.kernels.errors import IndexRangeError, ShapeError
from local_backend.kernels.functional import (
    copy_pages,
    empty_pages,
    linear,
    pack_weight,
    reshape_and_cache,
    rms_norm,
    rope,
    rope_tables,
    silu_mul,
)

TYPES = (torch.float32, torch.bfloat16)
TABLES = rope_tables(4096, 64, 10_000.0)


def turned(x: torch.Tensor, position: int, is_interleaved: bool) -> torch.Tensor:
    both = x.clone().view(1, 1, -1)
    at = torch.tensor([position], dtype=torch.int32)
    rope(both, both.clone(), at, *TABLES, is_interleaved=is_interleaved)
    return both.view(-1)


@given(
    distance=st.integers(0, 1000),
    place=st.integers(0, 3000),
    other=st.integers(0, 3000),
    is_interleaved=st.booleans(),
)
def test_dot_product_depends_on_the_distance_only(
    distance: int, place: int, other: int, is_interleaved: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn((2, 64), generator=generator)
    first, second = (
        torch.dot(turned(query, at + distance, is_interleaved), turned(key, at, is_interleaved))
        for at in (place, other)
    )
    assert float(first) == pytest.approx(float(second), abs=2e-4)  # |q| |k| is about 64


def test_distance_does_matter() -> None:
    query, key = torch.randn((2, 64), generator=torch.Generator().manual_seed(0))
    near, far = (torch.dot(turned(query, at, False), turned(key, 0, False)) for at in (1, 9))
    assert abs(float(near - far)) > 0.1


def test_position_zero_turns_nothing_and_lengths_stay() -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(2))
    for is_interleaved in (False, True):
        assert torch.equal(turned(x, 0, is_interleaved), x)
        assert float(turned(x, 4095, is_interleaved).norm()) == pytest.approx(float(x.norm()))


@pytest.mark.parametrize("position", [-1, 4096])
def test_a_position_beyond_the_tables_is_an_error_and_turns_nothing(
    mode: str, position: int
) -> None:
    query = torch.ones(2, 1, 64)
    at = torch.tensor([5, position], dtype=torch.int32)
    with pytest.raises(IndexRangeError):
        rope(query, query.clone(), at, *TABLES)
    assert torch.equal(query, torch.ones(2, 1, 64))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_norm_with_residual_is_addition_and_norm_to_the_bit(mode: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(4)
    x, residual = (torch.randn((9, 577), generator=generator).to(dtype) for _ in range(2))
    weight = torch.randn(577, generator=generator).to(dtype)
    summed = x + residual
    apart = rms_norm(summed, weight, 1e-5)
    assert torch.equal(rms_norm(x, weight, 1e-5, residual=residual), apart)
    assert torch.equal(residual, summed)
    assert torch.equal(rms_norm(summed[4:5], weight, 1e-5), apart[4:5])


@pytest.mark.parametrize("slot", [12, 2**30])
def test_a_slot_that_does_not_exist_is_an_error_and_stores_nothing(mode: str, slot: int) -> None:
    pages = torch.zeros(3, 4, 1, 8)
    slots = torch.tensor([2, slot], dtype=torch.int32)
    with pytest.raises(IndexRangeError):
        reshape_and_cache(torch.ones(2, 1, 8), torch.ones(2, 1, 8), pages, pages.clone(), slots)
    assert not pages.any()


@pytest.mark.parametrize("pair", [(0, 3), (3, 0), (-1, 0)])
def test_a_page_that_does_not_exist_is_an_error_and_copies_nothing(
    mode: str, pair: tuple[int, int]
) -> None:
    pages = torch.arange(24.0).view(3, 2, 1, 4)
    before = pages.clone()
    with pytest.raises(IndexRangeError):
        copy_pages(pages, pages.clone(), torch.tensor([(1, 2), pair], dtype=torch.int32)[1:])
    assert torch.equal(pages, before)


@pytest.mark.parametrize("pairs", [[(0, 1), (2, 1)], [(0, 1), (1, 2)], [(1, 1)]])
def test_copies_that_hang_on_their_order_are_an_error(pairs: list[tuple[int, int]]) -> None:
    pages = torch.zeros(3, 2, 1, 4)
    with pytest.raises(ShapeError, match="target"):
        copy_pages(pages, pages.clone(), torch.tensor(pairs, dtype=torch.int32))


@pytest.mark.parametrize("name", ["reshape_and_cache", "copy_pages", "rope"])
def test_the_reference_checks_indices_too(name: str) -> None:
    (choice,) = [choice for choice in available(name, {}) if choice.backend == "reference"]
    pages, far = torch.zeros(1, 1, 1, 2), torch.tensor([7], dtype=torch.int32)
    row = torch.zeros(1, 1, 2)
    arguments = {
        "reshape_and_cache": (row, row, pages, pages.clone(), far),
        "copy_pages": (pages, pages.clone(), torch.tensor([[0, 7]], dtype=torch.int32)),
        "rope": (row, row, far, *rope_tables(7, 2, 10.0), False),
    }
    with pytest.raises(IndexRangeError):
        choice.function(*arguments[name])


def test_empty_pages_are_zeros_of_the_shape_and_type_asked_for() -> None:
    torch.full((400, 2, 16, 3, 64), torch.nan).clone()  # what the process had there before
    for shape, dtype in (
        ((3, 2, 16, 3, 64), torch.bfloat16),
        ((400, 2, 16, 3, 64), torch.float32),
        ((0, 4), torch.float32),
    ):
        pages = empty_pages(shape, dtype)
        assert not pages.count_nonzero()
        assert (pages.shape, pages.dtype, pages.is_contiguous()) == (shape, dtype, True)
        assert pages.data_ptr() % (2 << 20) == 0 or not pages.numel()
        pages.fill_(1)
        assert int(pages.sum(dtype=torch.float64)) == pages.numel()


def test_arguments_that_break_the_contract() -> None:
    row, pages = torch.zeros(1, 1, 64), torch.zeros(2, 2, 1, 64)
    at = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(ShapeError, match="position a token"):
        rope(row, row, torch.zeros(2, dtype=torch.int32), *TABLES)
    with pytest.raises(ShapeError, match="must be int32"):
        rope(row, row, at.long(), *TABLES)
    with pytest.raises(ShapeError, match="must be float32"):
        rope(row, row, at, *(table.double() for table in TABLES))
    with pytest.raises(ShapeError, match="its weight"):
        rms_norm(torch.zeros(2, 3), torch.zeros(2), 1e-5)
    with pytest.raises(ShapeError, match="like x"):
        rms_norm(torch.zeros(2, 3), torch.zeros(3), 1e-5, residual=torch.zeros(3, 3))
    with pytest.raises(ShapeError, match=r"2 \* width"):
        silu_mul(torch.zeros(2, 3))
    with pytest.raises(ShapeError, match="no activation 'relu'"):
        silu_mul(torch.zeros(2, 4), activation="relu")
    with pytest.raises(ShapeError, match="each with a slot"):
        reshape_and_cache(row, row, pages, pages, torch.zeros(2, dtype=torch.int32))
    with pytest.raises(ShapeError, match="slots must be int32"):
        reshape_and_cache(row, row, pages, pages, at.long())
    with pytest.raises(ShapeError, match="count, 2"):
        copy_pages(pages, pages, torch.zeros(2, dtype=torch.int32))


def test_a_step_of_a_layer_is_the_same_in_any_split(mode: str) -> None:
    """Norm, product, rotation and gate of 50 tokens at once equal those of 50 single tokens."""
    generator = torch.Generator().manual_seed(6)
    x = torch.randn((50, 64), generator=generator).bfloat16()
    weight = torch.randn(64, generator=generator).bfloat16()
    matrix = pack_weight(torch.randn((128, 64), generator=generator).bfloat16() / 8)
    cosines, sines = rope_tables(64, 64, 10_000.0)

    def layer(rows: torch.Tensor, first: int) -> torch.Tensor:
        y = linear(rms_norm(rows, weight, 1e-5), matrix).view(-1, 2, 64)
        at = torch.arange(first, first + len(rows), dtype=torch.int32)
        rope(y[:, :1], y[:, 1:], at, cosines, sines)
        return silu_mul(y.reshape(-1, 128))

    whole = layer(x, 0)
    for place in range(50):
        assert torch.equal(layer(x[place : place + 1], place), whole[place : place + 1])
