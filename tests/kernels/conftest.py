"""Kernels are tested with memory full of NaN, Triton interpreted, and one compilation for all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
os.environ["TRITON_INTERPRET"] = "1"  # read when triton is first imported
os.environ.setdefault("CACHEAUDIT_KERNEL_CACHE", str(ROOT / ".cache" / "kernels"))

torch: Any = pytest.importorskip("torch", reason="torch is not installed: no tensors")

from local_backend.kernels.cpu import _native  # noqa: E402

MODES = ("auto", "no-amx", "portable")


@pytest.fixture(autouse=True, scope="session")
def _one_thread_of_torch() -> Iterator[None]:
    """Many tiny operations: waiting threads would cost more than they help."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a kernel forgets to write shows up as NaN."""

    def poisoned(make: Callable[..., Any]) -> Callable[..., Any]:
        def new(*arguments: Any, **options: Any) -> Any:
            made = make(*arguments, **options)
            return made.fill_(torch.nan if made.is_floating_point() else 127)

        return new

    for owner, name in (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch.Tensor, "new_empty"),
    ):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))
    found = _native.native()
    if found.library is not None:
        found.library.ck_poison(1)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each way to compute that this machine has."""
    found = _native.load({**os.environ, _native.MODE: request.param})
    if found.library is None:
        pytest.skip(f"no compiled kernels: {found.reason}")
    before = _native.native()
    if request.param == "auto" and not found.uses_amx:
        pytest.skip("this processor has no matrix unit: 'no-amx' tests the same")
    found.library.ck_poison(1)
    monkeypatch.setattr(_native, "native", lambda: found)
    yield str(request.param)
    if before.library is not None:
        before.library.ck_allow_amx(int(before.uses_amx))


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads, and sets it back."""
    found = _native.native()
    before = found.threads()
    yield lambda count: _native.native().set_threads(count, 50)
    found.set_threads(before, 50)
