"""torch with one thread, since tensors this small gain nothing; kernels compiled once for all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
os.environ.setdefault("CACHEAUDIT_KERNEL_CACHE", str(ROOT / ".cache" / "kernels"))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
