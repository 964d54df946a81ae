"""Rows of calls come back as they were added, from memory and from disk."""

from __future__ import annotations

from itertools import islice

import pytest

from cacheaudit.report.result import CallRow
from cacheaudit.report.spool import IN_MEMORY_BYTES, CallSpool


def row(number: int, size: int) -> CallRow:
    text = f"{number}-" + "x" * size
    return CallRow(text, "s", "main", "main", None, None, None, number, 0, 0, 0, 0)


@pytest.mark.parametrize("size", [10, 2_000])
def test_rows_come_back_in_order_whatever_their_size(size: int) -> None:
    spool = CallSpool()
    rows = [row(number, size) for number in range(3_000)]
    for one in rows:
        spool.append(one)
    assert len(spool) == len(rows)
    assert list(spool) == rows
    # The larger ones do not stay in memory.
    assert (sum(len(one.id) for one in rows) > IN_MEMORY_BYTES) == (size > 1_000)


def test_two_readers_do_not_disturb_each_other() -> None:
    spool = CallSpool()
    rows = [row(number, 2_000) for number in range(3_000)]
    for one in rows:
        spool.append(one)
    ahead = iter(spool)
    assert list(islice(ahead, 500)) == rows[:500]
    assert list(zip(spool, ahead, strict=False)) == list(zip(rows, rows[500:], strict=False))
