"""Arithmetic of attention memory, and that attention really keeps no table of scores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from local_backend.kernels import sizes

MEASURE = r"""
import json, pathlib, re, sys
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
n = 10_000
query, key, value = (torch.randn(n, 1, 64).bfloat16() for _ in range(3))
from local_backend.kernels.functional import paged_attention_prefill
pages = [x.view(n // 16, 16, 1, 64).contiguous() for x in (key, value)]
tables = torch.arange(n // 16, dtype=torch.int32)[None]
def sized(count):
    lengths = torch.tensor([count], dtype=torch.int32)
    return lengths, torch.tensor([0, count], dtype=torch.int32)
def peak():  # of this program alone; ru_maxrss would count its parent too
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024
def tiled(count):
    return paged_attention_prefill(query[:count], *pages, tables, *sized(count), causal=False)
def separated(count):
    scores = (query[:count, 0] * 0.125) @ key[:count, 0].T
    weights = scores.softmax(-1)
    return weights @ value[:count, 0]
attend = {"tiled": tiled, "separated": separated}[sys.argv[1]]
attend(64)
before = peak()
out = attend(n)
print(json.dumps([peak() - before, float(out.float().abs().mean())]))
"""


def test_pairs_of_five_tokens_and_eight_query_heads() -> None:
    """One key-value head a query head, one for four, one for all."""
    assert [sizes.kv_pairs(5, heads) for heads in (8, 2, 1)] == [40, 10, 5]


def test_kv_of_a_long_context() -> None:
    """32 layers, 32,768 tokens, head dimension 128, 2 bytes; 32, 8 and 1 key-value heads."""
    found = [
        sizes.kv_bytes(layers=32, tokens=32_768, kv_heads=heads, head_dim=128, element_bytes=2)
        for heads in (32, 8, 1)
    ]
    assert [size / sizes.GIB for size in found] == [16, 4, 0.5]


def test_tables_of_ten_thousand_tokens() -> None:
    assert sizes.score_table_bytes(10_000, 10_000, element_bytes=2) == 200_000_000
    assert sizes.score_table_bytes(10_000, 10_000, element_bytes=2, tables=2) == 400_000_000


def measured(kind: str, root: Path) -> tuple[int, float]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEASURE, kind],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    grown, mean = json.loads(done.stdout)
    return grown, mean


def test_measured_peak_with_and_without_tables(root: Path) -> None:
    """Two tables of 200 MB against none, for the same attention of 10,000 tokens."""
    from local_backend.kernels.threads import native_status

    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory is read from /proc")
    if not native_status().startswith("compiled"):
        pytest.skip(native_status())
    separated, mean = measured("separated", root)
    tiled, same_mean = measured("tiled", root)
    assert separated >= sizes.score_table_bytes(10_000, 10_000, element_bytes=2, tables=2) * 0.97
    assert tiled < 10_000_000
    assert same_mean == pytest.approx(mean, rel=0.02)
