"""Several stores of one program, opened at the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cacheaudit.store import open_store

STORES = 8


@pytest.mark.parametrize("kind", ["memory", "files", "one file"])
def test_stores_opened_at_once_are_all_there(tmp_path: Path, kind: str) -> None:
    start = threading.Barrier(STORES)

    def opened(number: int) -> int:
        name = "all" if kind == "one file" else str(number)
        start.wait(30)
        with open_store("sqlite://" if kind == "memory" else str(tmp_path / f"{name}.db")) as store:
            return len(list(store.sessions()))

    with ThreadPoolExecutor(STORES) as pool:
        assert list(pool.map(opened, range(STORES))) == [0] * STORES
