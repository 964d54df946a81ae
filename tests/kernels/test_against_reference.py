"""Every implementation of every operation against its reference."""

from __future__ import annotations

import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from local_backend.kernels import Implementation, available, get, operations
from local_backend.kernels.functional import Weight

EVERY = [(name, choice) for name in operations() for choice in available(name, {})]
COMPILED = [name for name, choice in EVERY if choice.backend == "cpu" and choice.requires]
IDS = st.lists(st.integers(0, 3), max_size=200)


@pytest.mark.parametrize(
    ("name", "choice"), EVERY, ids=[f"{name}-{choice.backend}" for name, choice in EVERY]
)
def test_cases_of_the_operation(name: str, choice: Implementation) -> None:
    operation = operations()[name]
    taken = 0
    for number, (arguments, right) in enumerate(operation.cases()):
        if choice.supports(*arguments):
            got = choice.function(*arguments)
            assert operation.agrees(got, right), f"case {number}: {got} instead of {right}"
            taken += 1
    assert taken or (name, choice.backend) == ("prefix_compare", "torch")  # tested below


@pytest.mark.parametrize("name", COMPILED)
def test_cases_in_every_mode_of_the_compiled_kernels(name: str, mode: str) -> None:
    operation = operations()[name]
    (choice,) = [choice for choice in available(name, {}) if choice.backend == "cpu"]
    taken = 0
    for number, (arguments, right) in enumerate(operation.cases()):
        if choice.supports(*arguments):
            got = choice.function(*arguments)
            assert operation.agrees(got, right), f"{mode}, case {number}"
            taken += 1
    assert taken


def test_every_operation_on_tensors_has_all_kinds_of_implementation() -> None:
    for name, operation in operations().items():
        if operation.requires:
            found = {choice.backend for choice in available(name, {})}
            assert {"reference", "cpu", "triton"} <= found, name


def test_a_wrong_answer_does_not_agree() -> None:
    for name, operation in operations().items():
        for _, right in operation.cases():
            tensors = right if isinstance(right, tuple) else (right,)
            if not operation.requires or not all(tensor.numel() for tensor in tensors):
                continue
            wrong = tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors)
            wrong[0].view(-1).nan_to_num_()[-1] += 1
            got = wrong if isinstance(right, tuple) else wrong[0]
            assert not operation.agrees(got, right), name


@pytest.mark.parametrize("kind", ["linear", "tiled_linear"])
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_products_with_a_matrix_that_is_not_packed(kind: str, backend: str) -> None:
    operation = operations()[kind]
    found = [choice for choice in available(kind, {}) if choice.backend == backend]
    for choice in found:
        taken = 0
        for (x, weight, residual, activation), right in operation.cases():
            matrix = weight.matrix()
            plain = Weight(*matrix.shape, matrix.dtype, weight.is_gated, matrix, None)
            if x.dtype is torch.float32 and choice.supports(x, plain, residual, activation):
                got = choice.function(x, plain, residual, activation)
                assert operation.agrees(got, right)
                taken += 1
        assert taken
    assert found or (kind, backend) == ("tiled_linear", "torch")


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
