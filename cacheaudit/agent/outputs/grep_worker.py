"""Rows of a text, and the search over them. Runs as a program of its own, with nothing else loaded.

A pattern from a model may take forever. In a process of its own it can be ended; a thread cannot.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator

ROW = 2000
"""Characters of a row; a longer line counts as several rows."""
_MEMORY = 1 << 30


def rows(lines: Iterable[str]) -> Iterator[str]:
    """Cut lines, which end in a newline or not, into rows without one."""
    for line in lines:
        bare = line.removesuffix("\n")
        if len(bare) <= ROW:
            yield bare
            continue
        for start in range(0, len(bare), ROW):
            yield bare[start : start + ROW]


def matches(path: str, pattern: str, most: int, width: int) -> dict[str, object]:
    """Search a file row by row.

    Args:
        path: The file, UTF-8.
        pattern: Regular expression.
        most: Matches to return; all are counted.
        width: Characters to return of each row, around the match.

    Returns:
        ``rows``: pairs of row number (from 1) and text; ``found``: all matches; ``total``: rows.
    """
    search = re.compile(pattern).search
    hits: list[tuple[int, str]] = []
    found = total = 0
    with open(path, encoding="utf-8", newline="\n") as file:  # noqa: PTH123 - few imports
        for total, row in enumerate(rows(file), 1):
            match = search(row)
            if match is None:
                continue
            found += 1
            if len(hits) < most:
                hits.append((total, _around(row, match.start(), width)))
    return {"rows": hits, "found": found, "total": total}


def _around(row: str, at: int, width: int) -> str:
    if len(row) <= width:
        return row
    start = max(0, min(at - width // 3, len(row) - width))
    return ("…" if start else "") + row[start : start + width] + "…"


def _main() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    except (ImportError, ValueError, OSError):
        pass  # no such limit here; the time limit remains
    asked = json.loads(sys.stdin.buffer.read())
    try:
        answer = matches(asked["path"], asked["pattern"], asked["most"], asked["width"])
    except (re.error, OverflowError, RecursionError) as error:
        answer = {"bad": str(error)}
    except MemoryError:
        answer = {"bad": "it needs too much memory"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main()
