"""Calls that are noted down give the same as calls that run at once, at the end of their block."""

from __future__ import annotations

import pytest
import torch

from local_backend.kernels.cpu import _native
from local_backend.kernels.deferred import current, deferred
from local_backend.kernels.errors import IndexRangeError
from local_backend.kernels.functional import (
    Room,
    Weight,
    linear,
    pack_weight,
    reshape_and_cache,
    rms_norm,
)

pytestmark = pytest.mark.skipif(
    _native.native().library is None, reason="no compiled kernels: nothing can be deferred"
)


Pages = tuple[torch.Tensor, torch.Tensor]


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def chain(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """Three products, each of what came before."""
    later, ones = current(), torch.ones(x.shape[1])
    for _ in range(3):
        normed = rms_norm(x, ones, 1e-5)
        if later is not None:
            later.keep(x, ones, normed)
        x = linear(normed, weight, residual=x)
    return x


@pytest.mark.usefixtures("mode")
def test_results_are_the_same_to_the_bit_and_come_at_the_end() -> None:
    x, weight = drawn(5, 48), pack_weight(drawn(48, 48))
    right = chain(x, weight)
    with deferred():
        found = chain(x, weight)
        assert found.isnan().all()  # fresh memory, as these tests make it
    assert torch.equal(found, right)
    assert current() is None


def test_what_was_noted_down_can_be_run_before_the_end() -> None:
    x, weight = drawn(2, 48), pack_weight(drawn(48, 48))
    right = chain(x, weight)
    with deferred() as later:
        found = chain(x, weight)
        later.run()
        assert torch.equal(found, right)
        again = chain(x, weight)
    assert torch.equal(again, right)


def store(pages: Pages, *slots: int) -> None:
    """Store ones in some slots, in a block of their own; slot 99 breaks the block off."""
    new = torch.ones(1, 1, 8)
    places = [torch.tensor([slot], dtype=torch.int32) for slot in slots]
    with deferred():
        for slot, place in zip(slots, places, strict=True):
            if slot == 99:
                raise ZeroDivisionError
            reshape_and_cache(new, new, *pages, place)


def test_a_call_that_fails_ends_the_block_and_later_ones_do_not_run() -> None:
    pages = torch.zeros(2, 4, 1, 8), torch.zeros(2, 4, 1, 8)
    with pytest.raises(IndexRangeError, match="store"):
        store(pages, 1, 8, 2)
    assert pages[0][:, :, 0, 0].tolist() == [[0.0, 1.0, 0.0, 0.0], [0.0] * 4]


def test_an_error_inside_runs_nothing_more() -> None:
    pages = torch.zeros(2, 4, 1, 8), torch.zeros(2, 4, 1, 8)
    with pytest.raises(ZeroDivisionError):
        store(pages, 1, 99)
    assert not pages[0].any()
    assert current() is None


def test_weights_in_one_room_do_not_touch() -> None:
    room = Room(block=1 << 12)
    matrices = [drawn(n, k) for n, k in ((33, 7), (5, 64), (200, 200), (1, 1))]  # one is larger
    packed = [pack_weight(matrix, room=room) for matrix in matrices]
    for matrix, weight in zip(matrices, packed, strict=True):
        assert torch.equal(weight.matrix(), matrix)
        assert weight.packed is not None
        assert weight.packed.data_ptr() % 64 == 0
