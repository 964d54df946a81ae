"""The kernels beside torch's own, in one run, interleaved: attention, products, small operations.

Run by name (``pytest tests/bench/test_kernels.py -s``); it prints figures and asserts no times.
Times are processor time of one thread, the best of several rounds, so that a busy machine disturbs
them least; what other programs take of the memory bandwidth still shows, which is why every figure
stands beside one of the same moment. ``KERNEL_BENCH_THREADS=2`` measures wall time of two threads
instead: for a quiet machine only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from local_backend.kernels.functional import (
    linear,
    pack_weight,
    paged_attention_decode,
    paged_attention_prefill,
    rms_norm,
    rope,
    rope_tables,
    silu_mul,
)
from local_backend.kernels.ops._pages import paged
from local_backend.kernels.threads import native_status, set_threads
from local_backend.kernels.threads import threads as current_threads

THREADS = int(os.environ.get("KERNEL_BENCH_THREADS", "1"))
PAGE = 16
SMOLLM2 = (9, 3, 64)
TYPES = (torch.bfloat16, torch.float32)
CACHED = 4 << 20  # weights are taken in turn until this much passed: more than the L2 cache


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads(), current_threads()
    torch.set_num_threads(THREADS)
    set_threads(THREADS)
    yield
    torch.set_num_threads(before[0])
    set_threads(before[1])


def best(*jobs: Callable[[], object], rounds: int = 7) -> list[float]:
    """Return the shortest time of each job; the jobs take turns."""
    clock = time.thread_time if THREADS == 1 else time.perf_counter
    times = [float("inf")] * len(jobs)
    for job in jobs:
        job()
    for _ in range(rounds):
        for place, job in enumerate(jobs):
            start = clock()
            job()
            times[place] = min(times[place], clock() - start)
    return times


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def say(capsys: pytest.CaptureFixture[str], *lines: str) -> None:
    with capsys.disabled():
        print("", *lines, sep="\n")


def contiguous(pages: torch.Tensor, tables: torch.Tensor, length: int) -> torch.Tensor:
    """[batch, kv_heads, length, head_dim], as torch's attention takes it."""
    batch, (_, size, heads, dim) = len(tables), pages.shape
    rows = pages[tables[:, : -(-length // size)].long()]
    return rows.view(batch, -1, heads, dim)[:, :length].transpose(1, 2)


def beside(took: list[float]) -> str:
    """How much longer torch takes."""
    contiguous, gathered = took[1] / took[0], took[2] / took[0]
    return (
        f"; torch on contiguous keys takes {contiguous:.2f} times as long, gathered {gathered:.2f}"
    )


def bandwidth() -> Callable[[], object]:
    """Reads 128 MB; the data is made once."""
    return torch.ones(32 << 20).sum


def test_peaks(capsys: pytest.CaptureFixture[str]) -> None:
    read = bandwidth()
    half = torch.randn(2048, 2048).bfloat16()
    full = half.float()
    took = best(read, lambda: half @ half, lambda: full @ full, rounds=5)
    flops = 2 * 2048**3
    say(
        capsys,
        f"{native_status()}; measured with {THREADS}",
        f"peaks by torch: reading {(128 << 20) / took[0] / 1e9:.1f} GB/s, bfloat16 product "
        f"{flops / took[1] / 1e9:.0f} GFLOP/s, float32 {flops / took[2] / 1e9:.0f} GFLOP/s",
    )


@pytest.mark.parametrize("dtype", TYPES, ids=name_of)
@pytest.mark.parametrize(("new", "length"), [(2048, 2048), (8192, 8192), (100, 4196)])
def test_prefill(
    capsys: pytest.CaptureFixture[str], new: int, length: int, dtype: torch.dtype
) -> None:
    heads, kv_heads, dim = SMOLLM2
    keys, values, tables, lengths = paged(
        [length], kv_heads=kv_heads, head_dim=dim, page_size=PAGE, dtype=dtype
    )
    query = torch.randn(new, heads, dim).to(dtype)
    offsets = torch.tensor([0, new], dtype=torch.int32)
    # Queries too as torch likes them best, outside of the clock.
    theirs, k, v = (
        query.transpose(0, 1)[None].contiguous(),
        *(contiguous(pages, tables, length).contiguous() for pages in (keys, values)),
    )
    mask: dict[str, Any] = {"is_causal": True}
    if new != length:
        mask = {"attn_mask": torch.arange(length) <= torch.arange(length - new, length)[:, None]}

    def ours() -> torch.Tensor:
        return paged_attention_prefill(query, keys, values, tables, lengths, offsets)

    def sdpa() -> torch.Tensor:
        return F.scaled_dot_product_attention(theirs, k, v, enable_gqa=True, **mask)

    def gathered() -> torch.Tensor:
        k, v = (contiguous(pages, tables, length) for pages in (keys, values))
        return F.scaled_dot_product_attention(theirs, k, v, enable_gqa=True, **mask)

    jobs = (ours, sdpa, gathered)
    took = best(*jobs, rounds=5 if new < 8192 else 1)
    assert torch.allclose(ours().float(), sdpa()[0].transpose(0, 1).float(), atol=2e-2)
    flops = 4 * heads * dim * (new * length - new * (new - 1) // 2)
    told = f"prefill {name_of(dtype):8} {new:5} of {length:5}: {took[0] * 1e3:7.2f} ms, "
    told += f"{flops / took[0] / 1e9:4.0f} GFLOP/s"
    say(capsys, told + beside(took))


@pytest.mark.parametrize("dtype", TYPES, ids=name_of)
@pytest.mark.parametrize(
    ("batch", "length", "shape"),
    [
        (1, 2048, SMOLLM2),
        (8, 2048, SMOLLM2),
        (8, 8192, SMOLLM2),
        (1, 8192, (16, 8, 64)),
        (1, 8192, (32, 8, 128)),
    ],
)
def test_decode(
    capsys: pytest.CaptureFixture[str],
    batch: int,
    length: int,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
) -> None:
    heads, kv_heads, dim = shape
    keys, values, tables, lengths = paged(
        [length] * batch, kv_heads=kv_heads, head_dim=dim, page_size=PAGE, dtype=dtype
    )
    query = torch.randn(batch, heads, dim).to(dtype)
    k, v = (contiguous(pages, tables, length).contiguous() for pages in (keys, values))
    theirs = query[:, :, None]

    def gathered() -> torch.Tensor:
        k, v = (contiguous(pages, tables, length) for pages in (keys, values))
        return F.scaled_dot_product_attention(theirs, k, v, enable_gqa=True)

    took = best(
        lambda: paged_attention_decode(query, keys, values, tables, lengths),
        lambda: F.scaled_dot_product_attention(theirs, k, v, enable_gqa=True),
        gathered,
        bandwidth(),
        rounds=9,
    )
    size = 2 * batch * length * kv_heads * dim * query.element_size()
    speed, peak = size / took[0], (128 << 20) / took[3]
    told = f"decode {name_of(dtype):8} batch {batch} of {length}, {heads}/{kv_heads}/{dim}: "
    told += f"{took[0] * 1e3:6.2f} ms, {size / 1e6:5.1f} MB at {speed / 1e9:4.1f} GB/s "
    say(capsys, told + f"({speed / peak:.0%} of reading)" + beside(took))


@pytest.mark.parametrize("dtype", TYPES, ids=name_of)
@pytest.mark.parametrize(
    ("inputs", "outputs"), [(576, 576), (576, 1536), (1536, 576), (576, 49_152)]
)
def test_products(
    capsys: pytest.CaptureFixture[str], inputs: int, outputs: int, dtype: torch.dtype
) -> None:
    size = inputs * outputs * (2 if dtype is torch.bfloat16 else 4)
    count = max(1, -(-CACHED // size))
    matrices = [torch.randn(outputs, inputs).to(dtype) for _ in range(count)]
    weights = [pack_weight(matrix) for matrix in matrices]
    lines = []
    for rows in (1, 8, 512, 2048):
        if rows * outputs > 512 * 1536 and (outputs > 1536 or dtype is torch.float32):
            continue
        x = torch.randn(rows, inputs).to(dtype)

        def ours(x: torch.Tensor = x) -> None:
            for weight in weights:
                linear(x, weight)

        def theirs(x: torch.Tensor = x) -> None:
            for matrix in matrices:
                F.linear(x, matrix)

        took = best(ours, theirs, rounds=5 if rows < 512 else 3)
        each = took[0] / count
        lines.append(
            f"product {name_of(dtype):8} {inputs}x{outputs}, {rows:4} rows: {each * 1e6:7.0f} us, "
            f"{2 * rows * inputs * outputs / each / 1e9:4.0f} GFLOP/s, weights at "
            f"{size / each / 1e9:4.1f} GB/s; torch takes {took[1] / took[0]:.2f} times as long"
        )
    say(capsys, *lines)


@pytest.mark.parametrize("rows", [1, 2048])
def test_small_operations(capsys: pytest.CaptureFixture[str], rows: int) -> None:
    heads, kv_heads, dim = SMOLLM2
    x, residual = (torch.randn(rows, heads * dim).bfloat16() for _ in range(2))
    weight, gate_up = torch.ones(heads * dim).bfloat16(), torch.randn(rows, 3072).bfloat16()
    query, key = (torch.randn(rows, count, dim).bfloat16() for count in (heads, kv_heads))
    at = torch.arange(rows, dtype=torch.int32)
    cosines, sines = rope_tables(rows, dim, 1e5)
    c, s = (table.repeat(1, 2)[:, None].bfloat16() for table in (cosines, sines))

    def norm() -> torch.Tensor:
        return F.rms_norm(residual + x, (heads * dim,), weight, 1e-5)

    def turn() -> None:
        for part in (query, key):
            left, right = part.chunk(2, -1)
            part * c + torch.cat((-right, left), -1) * s

    def gate() -> torch.Tensor:
        left, right = gate_up.chunk(2, -1)
        return F.silu(left) * right

    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "rms_norm": (lambda: rms_norm(x, weight, 1e-5, residual=residual.clone()), norm),
        "rope": (lambda: rope(query, key, at, cosines, sines), turn),
        "silu_mul": (lambda: silu_mul(gate_up), gate),
    }
    for name, jobs in pairs.items():
        took = best(*jobs, rounds=15)
        say(
            capsys,
            f"{name:8} {rows:4} rows: {took[0] * 1e6:6.0f} us; torch takes "
            f"{took[1] / took[0]:.2f} times as long",
        )
