"""Every implementation of every operation against its reference."""

from __future__ import annotations

import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_backend.kernels import Implementation, available, get, operations

EVERY = [(name, choice) for name in operations() for choice in available(name, {})]
IDS = st.lists(st.integers(0, 3), max_size=200)


@pytest.mark.parametrize(
    ("name", "choice"), EVERY, ids=[f"{name}-{choice.backend}" for name, choice in EVERY]
)
def test_cases_of_the_operation(name: str, choice: Implementation) -> None:
    taken = 0
    for arguments, right in operations()[name].cases():
        if choice.supports(*arguments):
            assert choice.function(*arguments) == right
            taken += 1
    assert taken or choice.requires


def test_cases_are_right_by_the_reference() -> None:
    for operation in operations().values():
        for arguments, right in operation.cases():
            assert operation.reference(*arguments) == right


@pytest.mark.parametrize("kind", [list, tuple, lambda ids: array("H", ids), bytes])
@settings(deadline=None)  # a busy machine proves nothing
@given(shared=IDS, a=IDS, b=IDS)
def test_prefix_compare_equals_the_plain_loop(
    kind: Any, shared: list[int], a: list[int], b: list[int]
) -> None:
    mine, theirs = shared + a, shared + b
    right = operations()["prefix_compare"].reference(mine, theirs)
    assert right >= len(shared)
    (fast,) = [choice for choice in available("prefix_compare", {}) if choice.backend == "cpu"]
    assert fast.function(kind(mine), kind(theirs)) == right
    assert fast.function(kind(theirs), kind(mine)) == right
    assert get("prefix_compare", {})(mine, tuple(theirs)) == right


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64"])
def test_prefix_compare_of_tensors(dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: no tensors to compare")
    compare = get("prefix_compare", {})
    for arguments, right in operations()["prefix_compare"].cases():
        if isinstance(arguments[0], list) and max([0, *arguments[0], *arguments[1]]) < 2**15:
            a, b = (torch.tensor(ids, dtype=getattr(torch, dtype)) for ids in arguments)
            assert compare(a, b) == right


def test_mixed_buffers_fall_back_to_the_reference() -> None:
    """Equal ids of different width have different bytes; they are still the same ids."""
    assert get("prefix_compare", {})(array("i", [1, 2, 3]), array("q", [1, 2, 4])) == 2


def test_importing_the_engine_loads_no_numeric_library(root: Path) -> None:
    code = (
        "import sys, local_backend, local_backend.kernels as k;"
        "k.get('prefix_compare')([1], [1]);"
        "print([m for m in ('torch', 'numpy', 'triton', 'cacheaudit') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
