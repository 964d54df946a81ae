"""Choice of an implementation."""

from __future__ import annotations

import importlib
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from local_backend.kernels import SWITCH, UnsupportedKernelError, available, get, operations
from local_backend.kernels.registry import bind


def test_prefix_compare_is_there_with_its_contract() -> None:
    operation = operations()["prefix_compare"]
    assert operation.name == "prefix_compare"
    assert "common prefix" in operation.contract


def test_the_preferred_comes_first_and_the_reference_last() -> None:
    choices = available("prefix_compare", {})
    assert choices[-1].backend == "reference"
    assert [c.priority for c in choices] == sorted((c.priority for c in choices), reverse=True)
    assert {"cpu", "reference"} <= {choice.backend for choice in choices}


def test_what_is_not_installed_is_not_available() -> None:
    has_torch = importlib.util.find_spec("torch") is not None
    assert ("torch" in {c.backend for c in available("prefix_compare", {})}) == has_torch


def test_switch_allows_only_what_it_names() -> None:
    environment = {SWITCH: " reference "}
    assert [c.backend for c in available("prefix_compare", environment)] == ["reference"]
    assert get("prefix_compare", environment)([1, 2], [1, 3]) == 1


def test_switch_is_read_from_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "cpu")
    assert [choice.backend for choice in available("prefix_compare")] == ["cpu"]


def test_unknown_backend_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(UnsupportedKernelError, match="names cuda; backends are: cpu, reference"):
        available("prefix_compare", {SWITCH: "cuda,cpu"})


def test_unknown_operation_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(
        UnsupportedKernelError, match=r"No operation 'sort'; there are: .*prefix_comp"
    ):
        get("sort", {})


def test_arguments_that_nothing_allowed_can_take() -> None:
    kernel = get("prefix_compare", {SWITCH: "cpu"})
    with pytest.raises(UnsupportedKernelError, match=r"\(array, list\) is not supported by: cpu"):
        kernel(array("i", [1]), [1])


def test_the_other_packages_name_is_refused(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import kernels"], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "local_backend.kernels; import it under that name" in done.stderr


def test_a_bound_operation_is_the_implementation_itself() -> None:
    one, other = array("i", [1, 2, 3]), array("i", [1, 2, 4])
    bound = bind("prefix_compare", one, other)
    assert bound in [choice.function for choice in available("prefix_compare")]
    assert bound(one, other) == get("prefix_compare")(one, other) == 2


def test_nothing_is_bound_where_nothing_takes_the_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SWITCH, "cpu")
    with pytest.raises(UnsupportedKernelError, match="takes such arguments"):
        bind("rms_norm", "no tensor", None, 0.0, None, 0.0)
