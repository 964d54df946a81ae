"""Attention over pages: the textbook's figures, the same bits in every company, clear errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from local_backend.kernels import available, get, operations
from local_backend.kernels.errors import IndexRangeError, ShapeError
from local_backend.kernels.functional import paged_attention_decode, paged_attention_prefill
from local_backend.kernels.ops._checks import close
from local_backend.kernels.ops._pages import full_softmax, paged
from local_backend.kernels.running import RunningSoftmax
from tests.kernels.helpers import Pool, pool

BACKENDS = ("reference", "cpu", "triton", "torch")
TYPES = (torch.float32, torch.bfloat16)


def three_records(dtype: torch.dtype) -> tuple[Any, ...]:
    """Scores ln 1, ln 1, ln 3 and values 0, 0, 10, in pages of two."""
    query = torch.tensor([[[1.0]]], dtype=dtype)
    keys = torch.tensor([0.0, 0.0, math.log(3), torch.nan], dtype=dtype).view(2, 2, 1, 1)
    values = torch.tensor([0.0, 0.0, 10.0, torch.nan], dtype=dtype).view(2, 2, 1, 1)
    tables = torch.tensor([[0, 1]], dtype=torch.int32)
    return query, keys, values, tables, torch.tensor([3], dtype=torch.int32), 1.0, None


@pytest.mark.parametrize("backend", BACKENDS)
def test_three_records_in_two_pages_give_six(backend: str) -> None:
    choices = {choice.backend: choice for choice in available("paged_attention_decode", {})}
    got = choices[backend].function(*three_records(torch.float32))
    assert float(got) == pytest.approx(6, abs=2e-6)
    if backend == "reference":
        exact = choices[backend].function(*three_records(torch.float64))
        assert float(exact) == pytest.approx(6, abs=1e-15 * 6)


def test_a_higher_score_scales_down_what_was_summed() -> None:
    running = RunningSoftmax((1,), 1, torch.float64, "cpu")
    tiles = (([0.0, 0.0], [0.0, 0.0]), ([math.log(3)], [10.0]))
    for scores, values in tiles:
        assert float(running.weight) == (0 if running.highest.isinf() else 2)
        running.add(
            torch.tensor([scores], dtype=torch.float64),
            torch.tensor(values, dtype=torch.float64)[:, None],
        )
    assert float(running.weight) == pytest.approx(2 / 3 + 1, abs=1e-15)
    assert float(running.total) == 10
    assert float(running.result()) == pytest.approx(10 / (2 / 3 + 1), abs=1e-15 * 6)


def test_running_softmax_of_nothing_is_zero() -> None:
    running = RunningSoftmax((2,), 3, torch.float64, "cpu")
    running.add(torch.empty((2, 0), dtype=torch.float64), torch.empty((0, 3), dtype=torch.float64))
    hidden = torch.full((2, 4), -torch.inf, dtype=torch.float64)
    running.add(hidden, torch.ones((4, 3), dtype=torch.float64))
    assert torch.equal(running.result(), torch.zeros((2, 3), dtype=torch.float64))


def test_tiles_equal_the_full_softmax_in_float64() -> None:
    """Pages of 7 against whole tables, differences of at most 1e-15 for values up to 1."""
    drawn = pool([150, 90], heads=4, kv_heads=2, head_dim=16, page_size=7, dtype=torch.float64)
    values = drawn.values / drawn.values.nan_to_num(nan=0.0).abs().max()
    offsets = torch.tensor([0, 150, 240], dtype=torch.int32)
    lengths = torch.tensor(drawn.lengths, dtype=torch.int32)
    case = (torch.cat(drawn.queries), drawn.keys, values, drawn.tables, lengths, offsets)
    got = operations()["paged_attention_prefill"].reference(*case, 0.25, True, None)
    right = full_softmax(*case, 0.25, True, None)
    assert float((got - right).abs().max()) <= 1e-15


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("head_dim", "page_size"), [(64, 16), (24, 5)])
def test_bits_do_not_depend_on_chunks_batch_or_threads(
    mode: str,
    threads: Callable[[int], None],
    head_dim: int,
    page_size: int,
    dtype: torch.dtype,
    window: int | None,
) -> None:
    """Full = chunked = decoded, alone = in a batch, one thread = three, to the bit."""
    sizes = [1300, 70, 513]
    drawn = pool(sizes, heads=6, kv_heads=2, head_dim=head_dim, page_size=page_size, dtype=dtype)
    threads(1)
    right = [drawn.attend([(row, 0, size)], window=window)[0] for row, size in enumerate(sizes)]
    threads(3)
    together = drawn.attend([(2, 0, 513), (0, 0, 1300), (1, 0, 70)], window=window)
    for row, got in zip((2, 0, 1), together, strict=True):
        assert torch.equal(got, right[row])
    for cuts in ([1, 17, 600, 601, 1299], [512], [64, 1024]):
        bounds = [0, *cuts, 1300]
        for begin, end in itertools.pairwise(bounds):
            got, _ = drawn.attend([(0, begin, end), (2, 500, 513)], window=window)
            assert torch.equal(got, right[0][begin:end])
    places = [(0, 1299), (1, 0), (2, 511), (2, 512), (0, 63), (0, 64), (1, 69)]
    got = drawn.decode(places, window=window)
    assert torch.equal(got, torch.stack([right[row][place] for row, place in places]))
    for part in ([(0, 1299)], [(0, 700), (0, 701)]):
        got = drawn.decode(part, window=window)
        assert torch.equal(got, torch.stack([right[row][place] for row, place in part]))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_bits_do_not_depend_on_where_pages_lie(mode: str, dtype: torch.dtype) -> None:
    drawn = pool([700], dtype=dtype)
    (right,) = drawn.attend([(0, 600, 700)])
    order = torch.randperm(len(drawn.keys), generator=torch.Generator().manual_seed(3))
    keys, values = drawn.keys[order], drawn.values[order]
    # An entry that is -1 indexes from the end; it is not read.
    tables = order.argsort()[drawn.tables.long()].int()
    moved = Pool(drawn.queries, keys, values, tables, drawn.lengths)
    assert torch.equal(moved.attend([(0, 600, 700)])[0], right)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_long_history_is_right(mode: str, dtype: torch.dtype) -> None:
    """8,192 keys, 40 new tokens, against torch's own attention in float64."""
    drawn = pool([8192], heads=3, kv_heads=1, dtype=dtype)
    (got,) = drawn.attend([(0, 8152, 8192)])
    rows = drawn.tables[0, : 8192 // 16].long()
    keys, values = (
        pages[rows].flatten(0, 1).transpose(0, 1).double() for pages in (drawn.keys, drawn.values)
    )
    seen = torch.arange(8192)[None] <= torch.arange(8152, 8192)[:, None]
    right = torch.nn.functional.scaled_dot_product_attention(
        drawn.queries[0][8152:].double().transpose(0, 1)[None],
        *(keys[None], values[None]),
        attn_mask=seen,
        enable_gqa=True,
    )
    assert close(got, right[0].transpose(0, 1))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_scores_far_apart_stay_finite(mode: str, dtype: torch.dtype) -> None:
    """A score 20,000 above the others takes all the weight, wherever it comes."""
    for place in (0, 63, 64, 511, 512, 899):
        keys, values, tables, lengths = paged(
            [900], kv_heads=1, head_dim=32, page_size=16, dtype=dtype
        )
        page, slot = int(tables[0, place // 16]), place % 16
        keys[page, slot] = 100.0
        query = torch.full((1, 2, 32), 40.0, dtype=dtype)
        got = paged_attention_decode(query, keys, values, tables, lengths)
        assert torch.equal(got, values[page, slot].expand(1, 2, 32))


@given(data=st.data())
def test_any_ragged_batch_equals_the_full_softmax(data: st.DataObject) -> None:
    group, kv_heads = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    head_dim = data.draw(st.sampled_from([1, 8, 16, 24, 32, 64]))
    page_size = data.draw(st.integers(1, 20))
    dtype = data.draw(st.sampled_from(TYPES))
    lengths = data.draw(st.lists(st.integers(1, 90), min_size=1, max_size=4))
    counts = [data.draw(st.integers(0, length)) for length in lengths]
    window = data.draw(st.none() | st.integers(1, 100))
    causal = data.draw(st.booleans())
    first = [
        0 if window is None else max(0, length - count - window + 1)
        for length, count in zip(lengths, counts, strict=True)
    ]
    keys, values, tables, sizes = paged(
        lengths,
        kv_heads=kv_heads,
        head_dim=head_dim,
        page_size=page_size,
        dtype=dtype,
        first_read=first,
    )
    query = torch.randn(sum(counts), group * kv_heads, head_dim).to(dtype)
    offsets = torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32)
    options = {"scale": 0.3, "causal": causal, "window": window}
    got = paged_attention_prefill(query, keys, values, tables, sizes, offsets, **options)
    right = full_softmax(query, keys, values, tables, sizes, offsets, 0.3, causal, window)
    assert close(got, right)


@pytest.mark.parametrize("table", [[0, 9], [0, -1], [9, 1]])
def test_a_page_that_does_not_exist_is_an_error(mode: str, table: list[int]) -> None:
    query, keys, values, _, lengths, *_ = three_records(torch.float32)
    tables = torch.tensor([table], dtype=torch.int32)
    with pytest.raises(IndexRangeError, match="page"):
        paged_attention_decode(query, keys, values, tables, lengths)


def test_a_table_shorter_than_the_sequence_is_an_error(mode: str) -> None:
    query, keys, values, tables, *_ = three_records(torch.float32)
    with pytest.raises(IndexRangeError):
        paged_attention_decode(query, keys, values, tables, torch.tensor([5], dtype=torch.int32))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({0: torch.zeros(1, 1)}, "queries are"),
        ({0: torch.zeros(1, 1, 2)}, "queries are"),
        ({0: torch.zeros(1, 1, 1, dtype=torch.bfloat16)}, "queries torch.bfloat16"),
        ({1: torch.zeros(2, 2, 1, 3)}, "pages are"),
        ({1: torch.zeros(2, 2, 2, 1), 2: torch.zeros(2, 2, 2, 1)}, "1 query heads cannot share 2"),
        ({3: torch.zeros(1, 2, dtype=torch.int64)}, "must be int32"),
        ({3: torch.zeros(2, 2, dtype=torch.int32)}, "1 sequences need tables"),
        ({4: torch.zeros(2, dtype=torch.int32)}, "1 sequences need tables"),
    ],
)
def test_arguments_that_break_the_contract(changes: dict[int, Any], told: str) -> None:
    arguments = list(three_records(torch.float32)[:5])
    for place, changed in changes.items():
        arguments[place] = changed
    with pytest.raises(ShapeError, match=told):
        paged_attention_decode(*arguments)


def test_options_that_break_the_contract() -> None:
    arguments = three_records(torch.float32)[:5]
    with pytest.raises(ShapeError, match="at least 1 key"):
        paged_attention_decode(*arguments, window=0)
    with pytest.raises(ShapeError, match="positive"):
        paged_attention_decode(*arguments, scale=-1.0)
    with pytest.raises(ShapeError, match="query_offsets must be int32"):
        paged_attention_prefill(*arguments, torch.tensor([0, 1]))


def test_float16_goes_to_torch_and_float64_to_the_reference() -> None:
    for dtype in (torch.float16, torch.float64):
        case = three_records(dtype)
        got = get("paged_attention_decode", {"CACHEAUDIT_KERNELS": "cpu,torch,reference"})(*case)
        assert got.dtype is dtype
        assert float(got) == pytest.approx(6, abs=5e-3)
