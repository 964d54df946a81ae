"""Reads and searches stored outputs by their handles, each time within a budget."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from cacheaudit.agent.outputs import grep_worker
from cacheaudit.agent.outputs.filter import OutputBudget
from cacheaudit.agent.outputs.size import Counter, estimated
from cacheaudit.agent.outputs.store import OutputStore
from cacheaudit.errors import OutputError

_MOST_ROWS: Final = 2000
_MOST_MATCHES: Final = 200
_WIDTH: Final = 400
_LONGEST_PATTERN: Final = 1000


class OutputReader:
    """Gives pieces of stored outputs.

    Args:
        store: Where they are.
        budget: How much one answer may take.
        count: Counts tokens.
        patience: Seconds after which a search is given up.
    """

    def __init__(
        self,
        store: OutputStore,
        budget: OutputBudget | None = None,
        count: Counter = estimated,
        patience: float = 5.0,
    ) -> None:
        self._store = store
        self._most = (budget or OutputBudget()).max_tokens
        self._count = count
        self._patience = patience

    def read_output(self, handle: str, offset: int = 1, limit: int = 200) -> str:
        """Read rows of a stored output.

        Args:
            handle: The handle that the cut output named.
            offset: First row, counted from 1.
            limit: Number of rows.

        Raises:
            OutputError: Nothing is kept under the handle, or the numbers make no sense.
        """
        if offset < 1 or limit < 1:
            raise OutputError("offset and limit begin at 1.")
        with self._store.open(handle) as file:
            rows = grep_worker.rows(file)
            skipped = sum(1 for _ in islice(rows, offset - 1))
            wanted = list(islice(rows, min(limit, _MOST_ROWS)))
            total = skipped + len(wanted) + sum(1 for _ in rows)
        if offset > total:
            return f"[{handle} has {total} rows; nothing at {offset}]"
        kept = self._within(wanted, self._count(_span(handle, total, total, total, more=True)))
        last = offset + len(kept) - 1
        head = _span(handle, offset, last, total, more=last < total)
        return "\n".join([head, *kept])

    def search_output(self, handle: str, pattern: str, limit: int = 50) -> str:
        """Search a stored output for a regular expression, row by row.

        Args:
            handle: The handle that the cut output named.
            pattern: Regular expression in Python's dialect; (?i) ignores case.
            limit: Most rows to return.

        Raises:
            OutputError: Nothing is kept under the handle, the pattern is none, or takes too long.
        """
        if len(pattern) > _LONGEST_PATTERN:
            raise OutputError(f"The pattern is longer than {_LONGEST_PATTERN} characters.")
        answer = self._search(handle, pattern, max(1, min(limit, _MOST_MATCHES)))
        found, total = answer["found"], answer["total"]
        rows = [f"{number}: {text}" for number, text in answer["rows"]]
        head = f"[{found} of {total} rows of {handle} match"
        kept = self._within(rows, self._count(f"{head}; the first {_MOST_MATCHES} are shown]"))
        shown = f"; the first {len(kept)} are shown]" if len(kept) < found else "]"
        return "\n".join([head + shown, *kept])

    def _search(self, handle: str, pattern: str, most: int) -> dict[str, Any]:
        asked = {
            "path": str(self._store.path(handle)),
            "pattern": pattern,
            "most": most,
            "width": _WIDTH,
        }
        try:
            # -I and -S: nothing of this process's environment, and a start within milliseconds.
            done = subprocess.run(  # noqa: S603 - a program of ours; the pattern is its input
                [sys.executable, "-I", "-S", "-X", "utf8", grep_worker.__file__],
                input=json.dumps(asked).encode(),
                capture_output=True,
                timeout=self._patience,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise OutputError(
                f"The search took longer than {self._patience:g} s and was given up.",
                "Use a simpler pattern: no repetition inside a repetition.",
            ) from None
        if done.returncode:
            raise OutputError("The search ended early.", "Use a simpler pattern.")
        answer: dict[str, Any] = json.loads(done.stdout)
        if "bad" in answer:
            raise OutputError(f"The pattern cannot be used: {answer['bad']}.")
        return answer

    def _within(self, rows: Sequence[str], used: int) -> list[str]:
        """Take rows while they fit; one at least, cut if it must be."""
        room = self._most - used
        kept: list[str] = []
        for row in rows:
            room -= self._count(row + "\n")
            if room < 0:
                break
            kept.append(row)
        if not kept and rows:
            row = rows[0]
            while row and self._count(row + "…\n") > self._most - used:
                row = row[: len(row) * 9 // 10]
            kept = [row + "…"]
        return kept


def _span(handle: str, first: int, last: int, total: int, *, more: bool) -> str:
    following = f"; go on with offset={last + 1}" if more else ""
    return f"[rows {first}-{last} of {total} of {handle}{following}]"
