"""Remembers which calls were counted, so that a copy in another file is not counted again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

IN_MEMORY = 250_000


class SeenKeys:
    """Keys of counted calls with their output counts.

    The copy with the highest output wins. Copies of one response agree in their input, which is
    fixed when the response begins; a later copy can only have a higher output count.

    A key is kept as its 64-bit hash: two of a million keys agree with a chance of 3 in 10^8.
    Memory is bounded: beyond ``in_memory`` keys they move to a temporary database on disk.
    """

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._recent: dict[int, int] = {}
        self._limit = in_memory
        self._disk: sqlite3.Connection | None = None
        self.repeated = 0

    def new_output(self, key: str | None, output: int) -> int | None:
        """Offer a call.

        Returns:
            ``None`` where the call is new; else the output tokens that this copy adds to those
            counted already, 0 where it adds nothing.
        """
        if key is None:
            return None
        number = hash(key)
        known = self._recent.get(number)
        if known is None and self._disk is not None:
            known = self._on_disk(number)
        if known is None:
            self._remember(number, output)
            return None
        self.repeated += 1
        if output <= known:
            return 0
        self._remember(number, output)
        return output - known

    def _remember(self, number: int, output: int) -> None:
        self._recent[number] = output
        if len(self._recent) >= self._limit:
            self._spill(self._recent.items())
            self._recent.clear()

    def _spill(self, rows: Iterable[tuple[int, int]]) -> None:
        if self._disk is None:
            import sqlite3  # few histories are that long

            # An empty name is SQLite's private file, removed with the connection.
            self._disk = sqlite3.connect("")
            self._disk.execute("PRAGMA cache_size = -16384")
            self._disk.execute("CREATE TABLE seen (key INTEGER PRIMARY KEY, output INTEGER)")
        self._disk.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?)", rows)

    def _on_disk(self, number: int) -> int | None:
        assert self._disk is not None  # noqa: S101 - asked by new_output
        row = self._disk.execute("SELECT output FROM seen WHERE key = ?", (number,)).fetchone()
        return None if row is None else int(row[0])
