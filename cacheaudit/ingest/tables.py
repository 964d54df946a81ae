"""Reads comma-, tab- and semicolon-separated files of any size, row by row.

A quoted field may span lines. A quote that is never closed would swallow the rest of a file; here
it costs the one line that it stands on, which is counted as truncated.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from cacheaudit.ingest.lines import MAX_LINE, raw_lines
from cacheaudit.model.ports import Head, ProblemSink

DELIMITERS = ",\t;|"
_MAX_LINES_A_ROW = 20_000
_FIELD_LIMIT = MAX_LINE
_END = (0, "")


def split_row(line: str, delimiter: str) -> list[str]:
    """Split one row into its cells, without the blanks around them."""
    if csv.field_size_limit() < _FIELD_LIMIT:
        csv.field_size_limit(_FIELD_LIMIT)  # the default refuses cells with whole prompts
    try:
        rows = list(csv.reader([line], delimiter=delimiter))
    except csv.Error:
        return []
    return [cell.strip() for cell in rows[0]] if rows else []


def delimiter_of(header: str) -> str:
    """Tell the delimiter from the header: the candidate that stands in it most often."""
    return max(DELIMITERS, key=header.count)


def header_of(head: Head) -> tuple[str, ...]:
    """Return the column names of a file, or nothing where it does not look like a table."""
    if head.lines:
        return ()
    data = head.data.removeprefix(b"\xef\xbb\xbf")
    encoding = "utf-8"
    if head.data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data, encoding = head.data, "utf-16"
    elif b"\0" in data[:4096]:
        return ()
    for line in data.decode(encoding, errors="replace").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.lstrip()[:1] in "{[<":
            return ()
        cells = split_row(line, delimiter_of(line))
        return tuple(cells) if len(cells) > 1 and all(len(c) < 100 for c in cells) else ()
    return ()


def table_rows(
    path: Path, problems: ProblemSink, start: int = 0, first_line: int = 1
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line number, cells by column name) for every row, or for those from ``start`` on.

    Lines that begin with ``#`` ahead of the header are comments. A row of another width than the
    header is counted. It is skipped where surplus cells hold something, and where the short row is
    the last of the file, since a number that was cut in two reads like a smaller one.
    """
    lines = _text_lines(path, problems)
    header: list[str] = []
    delimiter = ","
    for number, line in lines:
        if line.startswith("#"):
            continue
        delimiter = delimiter_of(line)
        header = split_row(line, delimiter)
        for name in {name for name in header if header.count(name) > 1}:
            problems("duplicate_column", f"{path}:{number}", name)
        break
    if start:
        lines = _text_lines(path, problems, start, first_line)
    short: tuple[int, list[str]] | None = None
    for number, cells in _rows(lines, delimiter, len(header), path, problems):
        if short is not None:
            yield short[0], dict(zip(header, short[1], strict=False))
            short = None
        if len(cells) < len(header):
            short = number, cells
        else:
            yield number, dict(zip(header, cells, strict=True))


def _text_lines(
    path: Path, problems: ProblemSink, start: int = 0, first_line: int = 1
) -> Iterator[tuple[int, str]]:
    is_cut_by_returns: bool | None = None
    for number, _, line in raw_lines(path, problems, start, first_line):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            problems("encoding", f"{path}:{number}", error.reason)
            text = line.decode(errors="replace")
        if is_cut_by_returns is None:
            # Some spreadsheets still end lines with a carriage return alone: the file is one line.
            is_cut_by_returns = not start and "\r" in text
        if is_cut_by_returns:
            yield from (
                (number + at, row) for at, row in enumerate(text.split("\r")) if row.strip()
            )
        else:
            yield number, text


def _rows(
    lines: Iterator[tuple[int, str]],
    delimiter: str,
    width: int,
    path: Path,
    problems: ProblemSink,
) -> Iterator[tuple[int, list[str]]]:
    """Join physical lines to rows; give up on a quote that finds no end."""
    waiting: deque[tuple[int, str]] = deque()
    while True:
        if not waiting:
            number, line = next(lines, _END)
            if '"' not in line and "\r" not in line:
                if not number:
                    return
                cells = [cell.strip() for cell in line.split(delimiter)]
                if len(cells) != width:
                    cells = _fitted(cells, width, f"{path}:{number}", problems)
                if cells:
                    yield number, cells
                continue
            waiting.append((number, line))
        pending = _take_row(lines, waiting)
        if not pending:
            return
        number = pending[0][0]
        joined = "\n".join(line for _, line in pending)
        cells = split_row(joined, delimiter) if joined.count('"') % 2 == 0 else []
        if cells and (len(cells) == width or len(pending) == 1):
            kept = _fitted(cells, width, f"{path}:{number}", problems)
            if kept:
                yield number, kept
            continue
        problems("truncated_line", f"{path}:{number}", "a quoted cell is not closed")
        waiting.extendleft(reversed(pending[1:]))


def _take_row(
    lines: Iterator[tuple[int, str]], waiting: deque[tuple[int, str]]
) -> list[tuple[int, str]]:
    """Take lines until every quote among them is closed, or there are too many."""
    taken: list[tuple[int, str]] = []
    quotes = size = 0
    while len(taken) < _MAX_LINES_A_ROW and size < _FIELD_LIMIT:
        item = waiting.popleft() if waiting else next(lines, None)
        if item is None:
            break
        taken.append(item)
        quotes += item[1].count('"')
        size += len(item[1])
        if quotes % 2 == 0:
            break
    return taken


def _fitted(cells: list[str], width: int, where: str, problems: ProblemSink) -> list[str]:
    if len(cells) == width:
        return cells
    if len(cells) > width and any(cells[width:]):
        problems("wrong_width", where, f"{len(cells)} cells under {width} columns")
        return []
    if len(cells) < width:
        problems("truncated_line", where, f"{len(cells)} cells under {width} columns")
    return cells[:width]


def normal_name(name: str) -> str:
    """Write a column name one way: ``Cache-Read Tokens`` and ``cacheReadTokens`` alike."""
    spaced: list[str] = []
    previous = ""
    for char in name.strip():
        if char.isupper() and previous and (previous.islower() or previous.isdigit()):
            spaced.append("_")
        spaced.append(char.lower() if char.isalnum() else "_")
        previous = char
    return "_".join(part for part in "".join(spaced).split("_") if part)


def normal_names(names: Sequence[str]) -> set[str]:
    """Normalise several column names."""
    return {normal_name(name) for name in names}
