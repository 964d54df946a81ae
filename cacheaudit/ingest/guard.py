"""One file that our own code fails on must not end a run over thousands: counted, and said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from cacheaudit.model.ports import ProblemSink

T = TypeVar("T")


def guarded(items: Iterator[T], source: str, path: Path, problems: ProblemSink) -> Iterator[T]:
    """Yield what a source yields, and end the file where the source itself fails."""
    try:
        yield from items
    except Exception as error:
        source_failed(source, path, error, problems)


def source_failed(source: str, path: Path, error: Exception, problems: ProblemSink) -> None:
    """Count a fault of a source by type and place; the message could quote the file."""
    import traceback

    at = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(at.filename).name}:{at.lineno}"
    problems("source_failed", str(path), f"{source}: {type(error).__name__} at {place}; report it")
