"""One server for the tests that need no settings of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.unit.local_backend.server.running import Running, running

# Kernels are compiled once, not anew in every test's home.
ROOT = Path(__file__).resolve().parents[4]
os.environ.setdefault("CACHEAUDIT_KERNEL_CACHE", str(ROOT / ".cache" / "kernels"))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads of torch would be in the way of the kernels'."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """A server; at the end no page of it is in use."""
    with running() as found:
        yield found
        found.pages_are_free()
