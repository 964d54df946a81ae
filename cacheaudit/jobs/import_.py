"""Fills a store from files: idempotent, resumable, incremental.

A file that looks as it did is skipped; one that only grew is continued behind its last complete
line where its source can do that, and read again otherwise, which changes nothing that is there.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from cacheaudit.errors import UnknownFormatError, UsageError
from cacheaudit.ingest.corpus import project_of
from cacheaudit.ingest.detect import all_sources, recognise
from cacheaudit.ingest.files import FoundFile, find_files, usual_places
from cacheaudit.ingest.guard import guarded, source_failed
from cacheaudit.ingest.names import clean_calls, is_text, shown, why_not
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.inputs import Inputs, Progress, silent
from cacheaudit.model.call import Call
from cacheaudit.model.clock import Clock
from cacheaudit.model.ports import ProblemSink, Source
from cacheaudit.store import Entry, FileCursor, Store, WriteCount

IMPORT_SCHEMA = "cacheaudit.import/1"
BATCH = 1000
_HEAD_BYTES = 4096
_FILES_AT_ONCE = 200
_SCAN = 1 << 20


@runtime_checkable
class ContinuingSource(Protocol):
    """A source of a line format that can begin in the middle of a file."""

    def read_from(
        self, path: Path, problems: ProblemSink, start: int, first_line: int
    ) -> Iterator[Call]:
        """Yield the calls that begin at or behind byte ``start``, where line ``first_line`` begins.

        A call that has lines on both sides may be yielded with its dedupe key: the reading with
        the most output tokens is kept.
        """
        ...


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did.

    Attributes:
        files_seen: Files that were looked at.
        files_skipped: Files that are as they were.
        files_continued: Files that had grown and were read from where they were.
        files_read: Files that were read from the start.
        calls_new: Calls that were not there.
        calls_updated: Calls that were replaced by a better reading.
        calls_unchanged: Readings that added nothing.
        problems: Kind, count and examples of what could not be read.
        db: The store, without password.
    """

    db: str
    files_seen: int
    files_skipped: int
    files_continued: int
    files_read: int
    calls_new: int
    calls_updated: int
    calls_unchanged: int
    problems: tuple[tuple[str, int, tuple[str, ...]], ...]
    schema: str = IMPORT_SCHEMA


def import_files(
    inputs: Inputs,
    store: Store,
    clock: Clock,
    progress: Progress = silent,
    sources: Sequence[Source] | None = None,
) -> ImportReport:
    """Import everything under the paths of ``inputs``, or the usual folders of known agents.

    Raises:
        UsageError: A named path does not exist, or there is nothing to import.
        UnknownFormatError: A named file has no known format, or nothing named can be read.
    """
    known = tuple(sources) if sources is not None else all_sources()
    problems = Problems()
    job = _Import(store, clock, problems, progress, known)
    job.run(find_files(_roots(inputs, known), problems))
    if job.unknown:
        raise UnknownFormatError(
            f"No source recognises {', '.join(map(shown, job.unknown[:3]))}.",
            "Other files, if any, were imported; docs/guide/sources.md lists the formats.",
        )
    report = job.report()
    if report.problems and not report.files_seen and inputs.paths:
        found = "; ".join(f"{kind}: {examples[0]}" for kind, _, examples in report.problems[:3])
        raise UnknownFormatError(
            f"Nothing readable was found ({found}).",
            "Name a file or a folder that holds recorded sessions.",
        )
    return report


def _roots(inputs: Inputs, sources: Sequence[Source]) -> list[Path]:
    for path in inputs.paths:
        if reason := why_not(path):
            raise UsageError(reason, "Check the path and try again.")
    paths = list(inputs.paths) or usual_places(sources, inputs.environment, inputs.home)
    if not paths:
        raise UsageError(
            "No agent keeps sessions in its usual folder here.",
            "Name the files or folders to import.",
        )
    # Absolute, so that a file is the same file from whichever folder it is imported.
    return [Path(os.path.realpath(path)) for path in paths]


class _FileProblems:
    """Counts the problems of one file, and adds them to those of the run."""

    def __init__(self, whole: Problems) -> None:
        self.own = Problems()
        self._whole = whole

    def __call__(self, kind: str, where: str, detail: str = "") -> None:
        self.own(kind, where, detail)
        self._whole(kind, where, detail)


class _Import:
    """One run."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        problems: Problems,
        progress: Progress,
        sources: Sequence[Source],
    ) -> None:
        self.unknown: list[Path] = []
        self._store = store
        self._clock = clock
        self._problems = problems
        self._progress = progress
        self._sources = sources
        self._batch: list[Entry] = []
        self._finished: list[FileCursor] = []
        self._count = WriteCount()
        self._files: Counter[str] = Counter()
        self._done = self._whole = 0

    def run(self, found: Iterable[FoundFile]) -> None:
        """Import files."""
        own = self._store.file
        itself = None if own is None else Path(os.path.realpath(own))
        files = [file for file in found if file.path != itself]
        self._whole = sum(file.size for file in files)
        for start in range(0, len(files), _FILES_AT_ONCE):
            group = files[start : start + _FILES_AT_ONCE]
            old = {c.path: c for c in self._store.cursors([shown(file.path) for file in group])}
            for file in group:
                self._one(file, old.get(shown(file.path)))
                self._done += file.size
                self._progress(self._done, self._whole)
        self._flush()

    def report(self) -> ImportReport:
        """Say what was done."""
        return ImportReport(
            db=self._store.url,
            files_seen=self._files.total(),
            files_skipped=self._files["skipped"],
            files_continued=self._files["continued"],
            files_read=self._files["read"],
            calls_new=self._count.new,
            calls_updated=self._count.updated,
            calls_unchanged=self._count.unchanged,
            problems=tuple(self._problems.items()),
        )

    def _one(self, file: FoundFile, old: FileCursor | None) -> None:
        try:
            if old is not None and self._is_as_it_was(file, old):
                self._files["skipped"] += 1
                return
            source = recognise(file.path, self._sources) if file.size else None
            if source is None:
                self._unrecognised(file)
                return
            cursor = self._begin(file, source, old)
        except OSError as error:
            self._files["unreadable"] += 1
            self._problems("unreadable_file", str(file.path), error.strerror or str(error))
            return
        except Exception as error:
            self._files["unreadable"] += 1
            source_failed("detection", file.path, error, self._problems)
            return
        self._files["continued" if cursor.offset else "read"] += 1
        self._read(file, source, cursor)

    def _unrecognised(self, file: FoundFile) -> None:
        self._files["unrecognised"] += 1
        self._problems("unknown_format" if file.size else "empty_file", str(file.path))
        if file.named and file.size:
            self.unknown.append(file.path)

    def _is_as_it_was(self, file: FoundFile, old: FileCursor) -> bool:
        version = next((_version(s) for s in self._sources if s.name == old.source), None)
        return (
            old.finished
            and (old.size, old.mtime_ns) == (file.size, file.mtime_ns)
            and old.source_version == version
            and (old.with_text or not self._store.store_text)
            and old.sidecar == _sidecar(file.path)
            and old.head == _head(file.path, old.head_bytes)
        )

    def _begin(self, file: FoundFile, source: Source, old: FileCursor | None) -> FileCursor:
        """Decide where to start reading."""
        fresh = FileCursor(
            path=shown(file.path),
            source=source.name,
            source_version=_version(source),
            size=file.size,
            mtime_ns=file.mtime_ns,
            head=_head(file.path, _HEAD_BYTES),
            head_bytes=min(file.size, _HEAD_BYTES),
            sidecar=_sidecar(file.path),
            with_text=self._store.store_text,
            imported_at=self._clock.now(),
        )
        if old is None:
            return fresh
        is_same_reading = (old.source, old.source_version) == (source.name, fresh.source_version)
        has_only_grown = file.size >= old.size and old.head == _head(file.path, old.head_bytes)
        if not (is_same_reading and has_only_grown):
            return msgspec.structs.replace(fresh, generation=old.generation + 1)
        kept = msgspec.structs.replace(fresh, generation=old.generation)
        has_all_text = old.with_text or not self._store.store_text
        if not isinstance(source, ContinuingSource) or file.size == old.size:
            return kept
        if old.finished and old.offset < old.size:
            self._flush()
            self._store.forget_behind(old.path, old.line)
        if not has_all_text:
            return kept
        return msgspec.structs.replace(
            kept, offset=old.offset, line=old.line, problems=old.problems
        )

    def _read(self, file: FoundFile, source: Source, cursor: FileCursor) -> None:
        problems = _FileProblems(self._problems)
        places: Counter[tuple[object, ...]] = Counter()
        line = None
        project = project_of(source, file.path)
        for call in _calls(source, file.path, problems, cursor):
            ordinal = 0
            if call.dedupe_key is None:
                at = call.origin.line if call.origin is not None else 0
                if at and at != line:
                    places.clear()  # calls of one line come together
                    line = at
                place = (at, call.session, call.lane, call.id, call.attempt)
                ordinal = places[place]
                places[place] += 1
            self._batch.append(
                Entry(
                    call=call,
                    source=source.name,
                    project=project,
                    source_version=cursor.source_version,
                    file=cursor.path,
                    generation=cursor.generation,
                    ordinal=ordinal,
                )
            )
            if len(self._batch) >= BATCH:
                self._flush(cursor)
        if problems.own.count("source_failed"):
            return  # not finished: another version may read on
        offset, lines = cursor.offset, cursor.line
        if isinstance(source, ContinuingSource):
            offset, lines = _last_line(file, cursor)
        self._finished.append(
            msgspec.structs.replace(
                cursor,
                offset=offset,
                line=lines,
                finished=True,
                problems=(*cursor.problems, *problems.own.items()),
            )
        )

    def _flush(self, reading: FileCursor | None = None) -> None:
        """Write what is held, with the files that are finished and the one that is not."""
        cursors = [*self._finished, *([reading] if reading is not None else [])]
        if self._batch or cursors:
            self._count += self._store.commit(self._batch, cursors)
        self._batch.clear()
        self._finished.clear()


def _calls(source: Source, path: Path, problems: ProblemSink, cursor: FileCursor) -> Iterator[Call]:
    if cursor.offset and isinstance(source, ContinuingSource):
        found = source.read_from(path, problems, cursor.offset, cursor.line + 1)
    else:
        found = source.read(path, problems)
    return guarded(found if is_text(path) else clean_calls(found), source.name, path, problems)


def _version(source: Source) -> int:
    """Version of the reading code: a source that reads more than before raises it."""
    return int(getattr(source, "version", 1))


def _head(path: Path, size: int) -> bytes:
    with path.open("rb") as stream:
        return hashlib.blake2b(stream.read(size), digest_size=16).digest()


def _sidecar(path: Path) -> str:
    """Describe the write-ahead log of a SQLite file: what is new may stand there alone."""
    try:
        status = path.with_name(path.name + "-wal").stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def _last_line(file: FoundFile, cursor: FileCursor) -> tuple[int, int]:
    """Find the end of the last complete line, and count the lines up to there."""
    offset, lines = cursor.offset, cursor.line
    try:
        with file.path.open("rb") as stream:
            stream.seek(offset)
            left = file.size - offset
            position = offset
            while left > 0 and (chunk := stream.read(min(left, _SCAN))):
                if (last := chunk.rfind(b"\n")) >= 0:
                    offset = position + last + 1
                    lines += chunk.count(b"\n")
                position += len(chunk)
                left -= len(chunk)
    except OSError:
        return cursor.offset, cursor.line
    return offset, lines
