"""Turns paths into sessions: finds files, recognises them, joins what belongs together.

One session is in memory at a time. A source whose files mix sessions is read once, its calls
waiting in a temporary database where there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

import msgspec

from cacheaudit.ingest.detect import frequent_source, heads, recognise
from cacheaudit.ingest.files import FoundFile, find_files
from cacheaudit.ingest.gather import gather
from cacheaudit.ingest.guard import guarded, source_failed
from cacheaudit.ingest.names import clean_calls, clean_records, is_text, shown
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.records import UsageRecord, record_of
from cacheaudit.ingest.replays import REPEATING, MainLine
from cacheaudit.ingest.seen import SeenKeys
from cacheaudit.model.call import Call, Session
from cacheaudit.model.ports import ProblemSink, Source

_QUICK_HEAD = 8 << 10
_SURE = 90


@runtime_checkable
class _QuickSource(Protocol):
    def usages(self, path: Path, problems: ProblemSink) -> Iterator[UsageRecord]: ...


@runtime_checkable
class _GroupedSource(Protocol):
    def group(self, path: Path) -> str: ...


@runtime_checkable
class _ProjectSource(Protocol):
    def project(self, path: Path) -> str | None: ...


class Recognised(msgspec.Struct, frozen=True):
    """A file with the source that reads it; ``group`` joins the files of one session."""

    file: FoundFile
    source: Source
    group: str


@cache
def _has(kind: type, protocol: type) -> bool:
    """Whether a source has a further ability; looking that up takes longer than opening a file."""
    return issubclass(kind, protocol)


def _grouped(source: Source) -> _GroupedSource | None:
    return cast("_GroupedSource", source) if _has(type(source), _GroupedSource) else None


def _quick(source: Source) -> _QuickSource | None:
    return cast("_QuickSource", source) if _has(type(source), _QuickSource) else None


def _with_projects(source: Source) -> _ProjectSource | None:
    return cast("_ProjectSource", source) if _has(type(source), _ProjectSource) else None


def project_of(source: Source, path: Path) -> str | None:
    """Name the project that a file belongs to: as its source knows it, else by its folder."""
    known = _with_projects(source)
    found = path.parent.name if known is None else known.project(path)
    return shown(found) if found else None


class Amendment(msgspec.Struct, frozen=True):
    """A later copy of a call that was handed out already had a higher output count."""

    call: Call
    more_output: int


class Corpus:
    """Everything under some paths.

    Args:
        paths: Files and folders.
        problems: Counts what cannot be read.
        progress: Called with (bytes done, bytes in all) after every file.
        sources: The sources to choose from; all by default.

    Attributes:
        files: Recognised files, in the order in which they are read.
        unknown: Named files that no source recognises.
        seen: Keys of the calls handed out; ``seen.repeated`` counts the copies left out.
        read_sources: Number of files by source.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        problems: Problems,
        progress: Callable[[int, int], None],
        sources: Sequence[Source] | None = None,
    ) -> None:
        self.problems = problems
        self._progress = progress
        self._sources = sources
        self.unknown: list[Path] = []
        self.seen = SeenKeys()
        self.read_sources: dict[str, int] = {}
        self.amendments: list[Amendment] = []
        found = list(find_files(paths, problems))
        self.files = _in_order(list(self._recognise(found)))
        self.total_bytes = sum(item.file.size for item in self.files)

    def sources_used(self) -> dict[str, Source]:
        """Return the sources that read a file, by name."""
        return {item.source.name: item.source for item in self.files}

    def _recognise(self, found: Sequence[FoundFile]) -> Iterator[Recognised]:
        last: Source | None = None
        for file in found:
            try:
                last = self._source_of(file, last) if file.size else None
            except OSError as error:
                self.problems("unreadable_file", str(file.path), error.strerror or str(error))
                continue
            except Exception as error:
                source_failed("detection", file.path, error, self.problems)
                continue
            if last is None:
                if file.named:
                    self.unknown.append(file.path)
                self.problems("unknown_format" if file.size else "empty_file", str(file.path))
                continue
            self.read_sources[last.name] = self.read_sources.get(last.name, 0) + 1
            grouped = _grouped(last)
            group = str(file.path) if grouped is None else grouped.group(file.path)
            yield Recognised(file, last, group)

    def _source_of(self, file: FoundFile, last: Source | None) -> Source | None:
        """Neighbours usually share a format, so the last source is asked first."""
        if last is None and self._sources is None:
            last = frequent_source()
        if last is not None and any(
            last.detect(head) >= _SURE for head in heads(file.path, _QUICK_HEAD, (1, 3))
        ):
            return last
        return recognise(file.path, self._sources)

    def usages(self) -> Iterator[tuple[Source, UsageRecord, int | None]]:
        """Yield (source, record, more) for totals.

        ``more`` is ``None`` for a call counted for the first time, else the output tokens that a
        later copy adds; copies that add nothing are left out.
        """
        done = 0
        group, line = "", MainLine()
        for item in self.files:
            if item.group != group:
                group, line = item.group, MainLine()
            repeating = item.source.name in REPEATING
            for record in self._records(item):
                if repeating and line.repeats(record.lane, (record.key or "").partition(":")[0]):
                    self.seen.repeated += 1
                    continue
                more = self.seen.new_output(record.key, record.usage.output or 0)
                if more != 0:
                    yield item.source, record, more
            done += item.file.size
            self._progress(done, self.total_bytes)

    def _records(self, item: Recognised) -> Iterator[UsageRecord]:
        path, source = item.file.path, item.source
        quick = _quick(source)
        if quick is not None:
            records = quick.usages(path, self.problems)
        else:
            calls = source.read(path, self.problems)
            project = project_of(source, path)
            records = (r for call in calls if (r := record_of(call, project)) is not None)
        return guarded(
            records if is_text(path) else clean_records(records), source.name, path, self.problems
        )

    def sessions(self) -> Iterator[Session]:
        """Yield every session once, duplicates removed.

        A copy with a higher output count than the call handed out before it goes to
        ``amendments``, which the caller empties as it likes.
        """
        done = 0
        for source, group in self._groups():
            calls = self._fresh(source, group)
            yield from gather(calls, source.name, project_of(source, group[0].file.path))
            done += sum(item.file.size for item in group)
            self._progress(done, self.total_bytes)

    def _groups(self) -> Iterator[tuple[Source, list[Recognised]]]:
        group: list[Recognised] = []
        for item in self.files:
            if group and (item.group != group[0].group or item.source is not group[0].source):
                yield group[0].source, group
                group = []
            group.append(item)
        if group:
            yield group[0].source, group

    def _calls(self, source: Source, path: Path) -> Iterator[Call]:
        calls = source.read(path, self.problems)
        calls = calls if is_text(path) else clean_calls(calls)
        return guarded(calls, source.name, path, self.problems)

    def _fresh(self, source: Source, group: Sequence[Recognised]) -> Iterator[Call]:
        line, repeating = MainLine(), source.name in REPEATING
        for item in group:
            for call in self._calls(source, item.file.path):
                if repeating and line.repeats(call.lane, call.id):
                    self.seen.repeated += 1
                    continue
                output = call.usage.output if call.usage is not None else None
                more = self.seen.new_output(call.dedupe_key, output or 0)
                if more is None:
                    yield call
                elif more:
                    self.amendments.append(Amendment(call, more))


def _in_order(items: list[Recognised]) -> list[Recognised]:
    """Order groups by their first file, and in a group what lies deeper (subagents) last."""
    first: dict[str, tuple[str, ...]] = {}
    for item in items:
        parts = item.file.path.parts
        if item.group not in first or parts < first[item.group]:
            first[item.group] = parts

    def place(item: Recognised) -> tuple[tuple[str, ...], str, int, tuple[str, ...]]:
        parts = item.file.path.parts
        return first[item.group], item.group, len(parts), parts

    return sorted(items, key=place)
