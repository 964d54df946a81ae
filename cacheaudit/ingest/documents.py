"""Reads records out of JSON that is either one object a line or one document around a list.

JSON lines are streamed, and documents that merely follow each other are taken one by one. A
document that spans lines is decoded at once, or record by record where it is long; where it is
broken, the records that are whole are still found and read.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from cacheaudit.ingest.lines import MAX_LINE, json_lines, mended, parse
from cacheaudit.ingest.long_documents import CutOffError, NoListError, listed
from cacheaudit.model.ports import ProblemSink

_PEEK = 1 << 20
# Documents over this size are read record by record; shorter ones are decoded at once.
LONG = 16 << 20
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\]]', re.DOTALL)
_BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb": "utf-8-sig"}


def json_records(
    path: Path, problems: ProblemSink, *lists: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number, object) for every record.

    Args:
        path: The file.
        problems: Counts what cannot be read.
        lists: Keys under which a document keeps its records, outermost first, such as ``log`` and
            ``entries``. A document without them, and without a list around it, is one record.

    Returns:
        Line numbers for JSON lines, positions in the list (from 1) for a document.
    """
    if _is_lines(path):
        for number, value in json_lines(path, problems):
            yield from _objects(path, problems, number, value, lists)
        return
    if _is_long(path):
        try:
            yield from _long(path, problems, lists)
            return
        except NoListError:
            pass  # a single record, which has to be held anyway
    data = read_whole(path, problems)
    if not data.strip():
        return
    value, elements = _document(data, path, problems, lists)
    if value is not None:
        yield from _unwrapped(path, problems, value, lists)
        return
    for number, record in enumerate(elements, 1):
        decoded = _decode(record)
        if isinstance(decoded, dict):
            yield number, decoded
        else:
            problems("invalid_json", f"{path}:{number}", "record in a broken document")


def _is_long(path: Path) -> bool:
    """Whether a document is to be read piece by piece; one in UTF-16 cannot be."""
    try:
        with path.open("rb") as stream:
            return path.stat().st_size > LONG and _BOMS.get(stream.read(2)) != "utf-16"
    except OSError:
        return False  # the reader says what is wrong with the file


def _long(
    path: Path, problems: ProblemSink, lists: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    try:
        with path.open("rb") as stream:
            for number, raw in enumerate(listed(stream, lists), 1):
                where = f"{path}:{number}"
                value = parse(raw, where, problems)
                if isinstance(value, dict):
                    yield number, value
                elif value is not None:
                    problems("wrong_type", where, f"{type(value).__name__}, not an object")
    except CutOffError:
        problems("truncated_document", str(path), f"ends behind record {number}")
    except OSError as error:
        count_unreadable(path, error, problems)


def _objects(
    path: Path, problems: ProblemSink, number: int, value: Any, lists: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield one line's record, or the records that it wraps."""
    if isinstance(value, dict) and not (lists and lists[0] in value):
        yield number, value
    elif isinstance(value, dict | list):
        for _, record in _unwrapped(path, problems, value, lists):
            yield number, record
    else:
        problems("wrong_type", f"{path}:{number}", f"{type(value).__name__}, not an object")


def _unwrapped(
    path: Path, problems: ProblemSink, value: Any, lists: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, Any]]]:
    for key in lists:
        if isinstance(value, dict) and key in value:
            value = value[key]
    if isinstance(value, dict):
        yield 1, value
        return
    if not isinstance(value, list):
        problems("wrong_type", str(path), f"{type(value).__name__} where records are expected")
        return
    for number, record in enumerate(value, 1):
        if isinstance(record, dict):
            yield number, record
        else:
            what = f"{type(record).__name__}, not an object"
            problems("wrong_type", f"{path}:{number}", what)


def _is_lines(path: Path) -> bool:
    """Whether the first line is a whole JSON value and more may follow, rather than a document."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_PEEK)
            while b"\n" not in head and len(head) < MAX_LINE:
                more = stream.read(_PEEK)
                if not more:
                    break
                head += more
    except OSError:
        return True  # the line reader says what is wrong with the file
    head = as_utf8(head)
    line, found, rest = head.lstrip().partition(b"\n")
    if not found or not rest.strip():
        return False
    if line[:1] == b"[":
        return _decode(line) is not None
    if line.strip() == b"{":
        return False
    if _decode(line) is not None or not _continues(line):
        return True
    return isinstance(_decode(rest.partition(b"\n")[0]), dict)


def _continues(line: bytes) -> bool:
    """Whether a line that is no JSON value looks like the first of a pretty-printed document."""
    return line.rstrip().endswith((b"{", b"[", b","))


def read_whole(path: Path, problems: ProblemSink) -> bytes:
    """Read a file as UTF-8, whatever its mark says; nothing where it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        count_unreadable(path, error, problems)
        return b""
    if _BOMS.get(data[:2]) == "utf-16":
        problems("encoding", str(path), "file is UTF-16, read as such")
    return as_utf8(data)


def as_utf8(data: bytes) -> bytes:
    """Return the beginning of a file, or all of it, as UTF-8 without its mark."""
    encoding = _BOMS.get(data[:2])
    return data if encoding is None else data.decode(encoding, errors="replace").encode()


def count_unreadable(path: Path, error: OSError, problems: ProblemSink) -> None:
    """Count a file that is gone, or that may not be read."""
    if isinstance(error, FileNotFoundError):
        problems("vanished_file", str(path))
    else:
        problems("unreadable_file", str(path), error.strerror or str(error))


def _document(
    data: bytes, path: Path, problems: ProblemSink, lists: tuple[str, ...]
) -> tuple[Any, Iterator[bytes]]:
    """Decode a document; where that fails, find its records."""
    try:
        return msgspec.json.decode(data), iter(())
    except msgspec.DecodeError as error:
        better = mended(data)
        if better is not None:
            problems("encoding", str(path), "bytes that are no UTF-8")
            return _document(better, path, problems, lists)
        if "trailing characters" in str(error):
            return None, _whole_elements(data, 0)
        cut = not data.rstrip().endswith((b"}", b"]"))
        problems("truncated_document" if cut else "invalid_json", str(path), str(error))
    except RecursionError:
        problems("too_deep", str(path), "nested deeper than the decoder allows")
    return None, _salvaged(data, lists)


def _decode(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        better = mended(data)
        return None if better is None else _decode(better)


def _salvaged(data: bytes, lists: tuple[str, ...]) -> Iterator[bytes]:
    """Yield the whole records of a broken document, from every list under the last key."""
    at = 0
    for key in lists[:-1]:
        at = max(at, data.find(_quoted(key)))
    while True:
        found = data.find(_quoted(lists[-1]), at) if lists else at
        bracket = data.find(b"[", found) if found >= 0 else -1
        if bracket < 0:
            return
        at = yield from _whole_elements(data, bracket + 1)
        if not lists:
            return


def _quoted(key: str) -> bytes:
    return b'"' + key.encode() + b'"'


def _whole_elements(data: bytes, start: int) -> Generator[bytes, None, int]:
    """Yield the objects from ``start`` on that are closed; return where their list ends."""
    depth, begin = 0, -1
    for token in _TOKEN.finditer(data, start):
        kind = token[0]
        if kind in (b"{", b"["):
            if depth == 0:
                begin = token.start()
            depth += 1
        elif kind in (b"}", b"]"):
            depth -= 1
            if depth < 0:
                return token.end()
            if depth == 0:
                yield data[begin : token.end()]
    return len(data)
