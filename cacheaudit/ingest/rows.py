"""Rows of an export that comes as a table, as JSON lines, or as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cacheaudit.ingest._fields import is_absent, read_count
from cacheaudit.ingest.documents import json_records
from cacheaudit.ingest.tables import header_of, normal_name, table_rows
from cacheaudit.model.ports import Head, ProblemSink

_NAMES_KEPT = 4096
_PEEK = 1 << 16


class Names:
    """Normalises column names, each once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """Return ``cache_read`` for ``cacheRead``, ``Cache read`` and the like."""
        known = self._known.get(name)
        if known is None:
            known = normal_name(name)
            if len(self._known) < _NAMES_KEPT:
                self._known[name] = known
        return known


def named_rows(
    path: Path, problems: ProblemSink, *lists: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line or position, values by normalised name) for every row.

    Args:
        path: The file.
        problems: Counts what cannot be read.
        lists: Keys under which a document keeps its rows.
    """
    names = Names()
    rows = json_records(path, problems, *lists) if is_json(path) else table_rows(path, problems)
    for number, row in rows:
        yield number, {names(key): value for key, value in row.items()}


def is_json(path: Path) -> bool:
    """Whether a file is JSON rather than a table; one that cannot be read is not.

    The first line alone does not tell: it may be the damaged one.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_PEEK)
    except OSError:
        return False
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        head = head[2:].replace(b"\0", b"")
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head[:1] in (b"{", b"["):
        return True
    lines = [line.lstrip() for line in head.split(b"\n") if line.strip()]
    return sum(line[:1] == b"{" for line in lines) * 2 > len(lines)


def first_rows(head: Head, *lists: str) -> list[set[str]]:
    """Return the normalised names of the first rows of a file, whatever its form."""
    header = header_of(head)
    if header:
        return [{normal_name(name) for name in header}]
    rows: list[Any] = list(head.lines[:5])
    document = head.document
    for key in lists:
        if isinstance(document, dict) and key in document:
            document = document[key]
    rows += document[:5] if isinstance(document, list) else [document]
    return [{normal_name(str(name)) for name in row} for row in rows if isinstance(row, dict)]


def as_counts(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Read numbers that an export wrote as text; whatever is no number stays as it is."""
    found: dict[str, Any] = {}
    for name, value in usage.items():
        if isinstance(value, str):
            if is_absent(value):
                continue
            try:
                found[name] = read_count(value)
            except ValueError:
                found[name] = value
        elif isinstance(value, Mapping):
            found[name] = as_counts(value)
        else:
            found[name] = value
    return found
