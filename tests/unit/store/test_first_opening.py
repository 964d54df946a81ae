"""A database that another program is just making is waited for, whatever lock it holds."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cacheaudit.store import open_store


@pytest.fixture
def other(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another program's connection to a database without a write-ahead log yet."""
    other = sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    yield other
    other.close()


@pytest.mark.parametrize("lock", ["EXCLUSIVE", "IMMEDIATE"])
def test_the_log_is_turned_on_once_the_other_is_done(
    other: sqlite3.Connection, tmp_path: Path, lock: str
) -> None:
    other.execute("CREATE TABLE theirs (x)")
    other.execute(f"BEGIN {lock}")
    done = threading.Timer(0.4, other.execute, ["COMMIT"])
    done.start()
    with open_store(f"sqlite:///{tmp_path / 'new.db'}") as store:
        assert list(store.sessions()) == []
    done.join()
    # What the database file itself says: 2 is the write-ahead log.
    assert (tmp_path / "new.db").read_bytes()[18:20] == bytes([2, 2])
