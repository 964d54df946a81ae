"""Recognises the format of a file by its content."""

from __future__ import annotations

import codecs
import importlib
import os
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import cast

from cacheaudit.ingest import sources as sources_package
from cacheaudit.ingest._fields import decode
from cacheaudit.model.ports import Head, Source

HEAD_BYTES = 64 << 10
HEAD_LINES = 40
_SCAN = 1 << 20
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Windows behind the head that are looked at before a file counts as unknown.
_FURTHER = 16


def frequent_source() -> Source:
    """Return the source of by far the most files, without importing the others."""
    return cast("Source", _source("claude_code"))


def _source(name: str) -> object:
    module = importlib.import_module(f"{sources_package.__name__}.{name}")
    return getattr(module, "SOURCE", None)


@cache
def all_sources() -> tuple[Source, ...]:
    """Return one instance of every source, in order of name.

    A source module defines ``SOURCE``; dropping a file into ``ingest/sources`` is all it takes.
    """
    names = sorted(info.name for info in pkgutil.iter_modules(sources_package.__path__))
    found = (_source(name) for name in names if not name.startswith("_"))
    return tuple(cast("Source", source) for source in found if source is not None)


def head_of(path: Path, limit: int = HEAD_BYTES, lines: int = HEAD_LINES, start: int = 0) -> Head:
    """Read and decode the beginning of a file, or of what lies behind byte ``start``.

    Raises:
        OSError: The file cannot be read.
    """
    return next(heads(path, limit, (lines,), start))


def heads(path: Path, limit: int, lines: Iterable[int], start: int = 0) -> Iterator[Head]:
    """Yield the beginning of a file with ever more of its lines decoded.

    Args:
        path: The file.
        limit: Bytes to read.
        lines: How many lines to decode, each more than the one before.
        start: Byte at which to begin.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size - start
        if start:
            stream.seek(start)
        data = stream.read(limit)
    if not start and data.startswith(_UTF16):
        whole = len(data) == size
        data = data.decode("utf-16", errors="replace").encode()
        size = len(data) if whole else max(size, len(data) + 1)
    document = None
    if len(data) == size and data.lstrip()[:1] in (b"{", b"["):
        document = decode(data)
    for number in lines:
        found = _json_objects(data, size, number)
        yield Head(path=path, data=data, size=size, lines=found, document=document)


def detect(head: Head, sources: Sequence[Source] | None = None) -> Source | None:
    """Return the source that is surest of the file, or ``None`` where none is."""
    best, best_score = None, 0
    for source in sources if sources is not None else all_sources():
        score = source.detect(head)
        if score > best_score:
            best, best_score = source, score
    return best


def recognise(path: Path, sources: Sequence[Source] | None = None) -> Source | None:
    """Return the source of a file, as :func:`detect` does, and look on behind its head.

    Neither an overlong first line nor many lines of kinds that tell nothing hide what follows.

    Raises:
        OSError: The file cannot be read.
    """
    head = head_of(path)
    found = detect(head, sources)
    start = 0
    for _ in range(_FURTHER):
        behind = _behind(head)
        if found is not None or behind >= head.size:
            return found
        start = start + behind if behind else _next_line(path, start)
        if start < 0:
            return None
        head = head_of(path, start=start)
        # A table is known by its header alone, so what is no JSON tells nothing here.
        found = detect(head, sources) if head.lines else None
    return found


def _behind(head: Head) -> int:
    """Count the bytes of the lines that were looked at; 0 where the first goes on behind them."""
    if len(head.data) == head.size and head.data.count(b"\n") < HEAD_LINES:
        return head.size
    lines = head.data.split(b"\n", HEAD_LINES)
    return len(head.data) - len(lines[-1])


def _next_line(path: Path, start: int) -> int:
    """Find the beginning of the line behind the one that begins at a place; -1 for none."""
    with path.open("rb") as stream:
        stream.seek(start)
        while chunk := stream.read(_SCAN):
            if (end := chunk.find(b"\n")) >= 0:
                return stream.tell() - len(chunk) + end + 1
    return -1


def _json_objects(data: bytes, size: int, most: int) -> tuple[dict[str, object], ...]:
    lines = data.split(b"\n", most)
    if len(data) < size and 1 < len(lines) <= most:
        lines.pop()
    found: list[dict[str, object]] = []
    for line in lines[:most]:
        value = decode(line)
        if isinstance(value, dict):
            found.append(value)
    return tuple(found)
