"""Finds files that may hold sessions; loops, permissions, vanishing files are counted."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from stat import S_ISREG

import msgspec

from cacheaudit.model.ports import ProblemSink, Source

SUFFIXES = frozenset(
    (
        ".jsonl",
        ".ndjson",
        ".json",
        ".csv",
        ".tsv",
        ".har",
        ".db",
        ".sqlite",
        ".sqlite3",
        ".yaml",
        ".yml",
        ".sse",
        ".log",
    )
)
# Claude Code describes a subagent beside its transcript; it holds no usage.
_SIDECAR = ".meta.json"
_SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv"})


class FoundFile(msgspec.Struct, frozen=True):
    """A file to read.

    Attributes:
        path: As found.
        size: Bytes.
        mtime_ns: Time of the last change in nanoseconds.
        named: Whether the user named this very file.
    """

    path: Path
    size: int
    mtime_ns: int
    named: bool


def find_files(paths: Sequence[Path], problems: ProblemSink) -> Iterator[FoundFile]:
    """Yield every readable candidate under ``paths``, each file once, in order of path."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112 - unlike Path.is_dir, never raises
            yield from _walk(path, seen, set(), problems)
            continue
        found = _entry(path, path.stat, seen, problems, named=True)
        if found is not None:
            yield found


def usual_places(
    sources: Iterable[Source], environment: Mapping[str, str], home: Path
) -> list[Path]:
    """Return the existing folders and files where known agents keep their sessions."""
    places: list[Path] = []
    for source in sources:
        for place in source.usual_places(environment, home):
            try:
                exists = place.exists()
            except OSError:
                continue
            if exists and place not in places:
                places.append(place)
    return places


def _walk(
    folder: Path, seen: set[tuple[int, int]], above: set[tuple[int, int]], problems: ProblemSink
) -> Iterator[FoundFile]:
    try:
        status = folder.stat()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        problems("unreadable_folder", str(folder), error.strerror or str(error))
        return
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        problems("symlink_loop", str(folder))
        return
    inside = above | {identity}
    for entry in entries:
        path = Path(entry.path)
        try:
            is_folder = entry.is_dir()
        except OSError as error:
            problems(_kind(error), str(path), error.strerror or str(error))
            continue
        if is_folder:
            if entry.name not in _SKIPPED_FOLDERS:
                yield from _walk(path, seen, inside, problems)
        elif entry.name.endswith(_SIDECAR):
            continue
        elif os.path.splitext(entry.name)[1].lower() in SUFFIXES:  # noqa: PTH122 - hot path
            found = _entry(path, entry.stat, seen, problems, named=False)
            if found is not None:
                yield found


def _entry(
    path: Path,
    stat: Callable[[], os.stat_result],
    seen: set[tuple[int, int]],
    problems: ProblemSink,
    *,
    named: bool,
) -> FoundFile | None:
    try:
        status = stat()
    except OSError as error:
        problems(_kind(error), str(path), error.strerror or str(error))
        return None
    if not S_ISREG(status.st_mode):
        what = "a pipe, socket or device; save its content to a file first"
        problems("not_a_file", str(path), what)
        return None
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        return None
    seen.add(identity)
    return FoundFile(path, status.st_size, status.st_mtime_ns, named)


def _kind(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "symlink_loop"
    return "vanished_file" if error.errno == errno.ENOENT else "unreadable_file"
