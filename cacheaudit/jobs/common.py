"""What several jobs share: opening what was named, and saying what it cannot tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from cacheaudit.errors import MissingExtraError, UnknownFormatError, UsageError
from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.detect import all_sources
from cacheaudit.ingest.files import usual_places
from cacheaudit.ingest.names import shown, why_not
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.replays import without_replays
from cacheaudit.jobs.inputs import Inputs, Progress
from cacheaudit.model.call import Session
from cacheaudit.model.clock import iso
from cacheaudit.model.ports import Source
from cacheaudit.providers.facts import RULES_VERSION
from cacheaudit.report.result import Quality

if TYPE_CHECKING:
    from cacheaudit.store import Store

_MISSING: Final = "missing_extra"


def rules_version() -> str:
    """Return the date of the newest provider rule that results rest on."""
    return RULES_VERSION


class Moments:
    """Earliest and latest of any number of moments."""

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first: float | None = None
        self.last: float | None = None

    def add(self, at: float) -> None:
        """Take one moment into account."""
        if self.first is None or at < self.first:
            self.first = at
        if self.last is None or at > self.last:
            self.last = at

    @property
    def first_iso(self) -> str | None:
        """The earliest as RFC 3339."""
        return None if self.first is None else iso(self.first)

    @property
    def last_iso(self) -> str | None:
        """The latest as RFC 3339."""
        return None if self.last is None else iso(self.last)


def open_corpus(inputs: Inputs, problems: Problems, progress: Progress) -> Corpus:
    """Find what was named, or the usual folders of every known agent.

    Raises:
        UsageError: A named path does not exist, or no agent keeps sessions here.
    """
    paths = list(inputs.paths)
    for path in paths:
        if reason := why_not(path):
            raise UsageError(reason, "Check the path and try again.")
    if not paths:
        paths = usual_places(all_sources(), inputs.environment, inputs.home)
        if not paths:
            raise UsageError(
                "No agent keeps sessions in its usual folder here.",
                "Name the files or folders to read; 'cacheaudit doctor' lists the usual folders.",
            )
    return Corpus(paths, problems, progress)


def require_readable(corpus: Corpus, problems: Problems) -> None:
    """Complain where a named file has no known format or nothing at all was found.

    Raises:
        UnknownFormatError: What was named holds no recorded session.
        MissingExtraError: Nothing of it can be read without an optional part.
    """
    if corpus.unknown:
        names = ", ".join(shown(path) for path in corpus.unknown[:3])
        raise UnknownFormatError(
            f"No source recognises {names}.",
            "docs/guide/sources.md lists the formats and how each is recognised.",
        )
    if not corpus.files:
        found = "; ".join(f"{kind}: {examples[0]}" for kind, _, examples in problems.items()[:3])
        raise UnknownFormatError(
            f"Nothing readable was found ({found or 'no candidate files'}).",
            "Name a file or a folder that holds recorded sessions.",
        )
    for kind, count, examples in problems.items():
        if kind == _MISSING and count >= len(corpus.files):
            raise MissingExtraError(f"Nothing could be read. {examples[0]}")


def source_limits(corpus: Corpus, problems: Problems) -> list[Quality]:
    """Say what could not be read and what the sources cannot know."""
    rows = [Quality(kind, count, list(examples)) for kind, count, examples in problems.items()]
    if corpus.seen.repeated:
        rows.append(
            Quality("repeated_calls_left_out", corpus.seen.repeated, ["copies of counted calls"])
        )
    for name, source in sorted(corpus.sources_used().items()):
        files = corpus.read_sources[name]
        rows.extend(Quality(kind, files, [text]) for kind, text in _cannot(source))
    return rows


def stored_sessions(store: Store, names: Sequence[str] | None = None) -> Iterator[Session]:
    """Yield the sessions of a store; what a side line repeats of its main line is left out."""
    return map(without_replays, store.sessions(names))


def undated(count: int) -> Quality:
    """Say that calls without a date were left out of a period."""
    text = "calls without a date belong to no period (--since, --until)"
    return Quality("undated_calls_left_out", count, [text])


def _cannot(source: Source) -> list[tuple[str, str]]:
    able = source.capabilities
    said: list[tuple[str, str]] = []
    if not able.reads:
        said.append(("cache_reads_not_recorded", f"{source.title} records no cache reads"))
    if not able.writes:
        said.append(("cache_writes_not_recorded", f"{source.title} records no cache writes"))
    elif not able.ttl_split:
        said.append(
            ("write_lifetimes_not_recorded", f"{source.title} does not say how long writes live")
        )
    if not able.bodies:
        said.append(
            ("requests_not_recorded", f"{source.title} records no requests: causes from usage only")
        )
    if able.start_times == "interval":
        said.append(
            ("start_times_are_intervals", f"{source.title} stamps responses, not request starts")
        )
    elif able.start_times == "none":
        said.append(("start_times_not_recorded", f"{source.title} records no request starts"))
    if able.output == "lower_bound":
        said.append(
            ("output_may_be_low", f"{source.title} may log a response before its final count")
        )
    elif able.output == "none":
        said.append(("output_not_recorded", f"{source.title} records no output tokens"))
    return said
