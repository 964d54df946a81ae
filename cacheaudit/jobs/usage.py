"""Totals only: the fast path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Literal, get_args

from cacheaudit._version import __version__
from cacheaudit.errors import UsageError
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.records import UsageRecord, record_of
from cacheaudit.jobs.common import (
    Moments,
    open_corpus,
    require_readable,
    rules_version,
    source_limits,
    stored_sessions,
    undated,
)
from cacheaudit.jobs.inputs import Inputs, Progress
from cacheaudit.jobs.tally import Tally, merged
from cacheaudit.model.clock import day
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.result import Group, Quality, Scope, Tool, UsageResult

GroupBy = Literal["day", "session", "model", "purpose", "agent", "project"]
GROUPS: tuple[GroupBy, ...] = get_args(GroupBy)
_UNKNOWN = "unknown"
_DAY = 86_400


def usage(inputs: Inputs, by: str, progress: Progress) -> UsageResult:
    """Total what was consumed.

    Args:
        inputs: What to read.
        by: ``day``, ``session``, ``model``, ``purpose``, ``agent`` or ``project``.
        progress: Told after every file.

    Raises:
        UsageError: ``by`` is none of these, or nothing readable was named.
    """
    key = _KEYS.get(by)
    if key is None:
        raise UsageError(f"Cannot group by {by!r}.", f"Choose one of: {', '.join(GROUPS)}.")
    tally = Tally(PriceBook(inputs.prices))
    if inputs.db is not None and not inputs.paths:
        return _of_store(inputs.db, inputs, tally, by)
    problems = Problems()
    corpus = open_corpus(inputs, problems, progress)
    records = ((source.title, record, more) for source, record, more in corpus.usages())
    seen = _add_all(records, tally, key, inputs)
    require_readable(corpus, problems)
    scope = seen.scope(corpus.read_sources, len(corpus.files), corpus.total_bytes)
    return _result(tally, by, scope, [*source_limits(corpus, problems), *seen.limits()])


class _Seen:
    """What was added up."""

    def __init__(self) -> None:
        self.moments = Moments()
        self.calls = 0
        self.undated = 0
        self.sessions: set[str] = set()

    def scope(self, sources: dict[str, int], files: int, size: int) -> Scope:
        """Describe it."""
        return Scope(
            sources=dict(sorted(sources.items())),
            sessions=len(self.sessions),
            calls=self.calls,
            first=self.moments.first_iso,
            last=self.moments.last_iso,
            files=files,
            bytes=size,
        )

    def limits(self) -> list[Quality]:
        """Say what was left out."""
        return [undated(self.undated)] if self.undated else []


def _of_store(url: str, inputs: Inputs, tally: Tally, by: str) -> UsageResult:
    from cacheaudit.store.store import open_store

    sources: dict[str, int] = {}

    def records() -> Iterator[_Item]:
        for session in stored_sessions(store):
            sources[session.source] = sources.get(session.source, 0) + 1
            for call in session.calls:
                record = record_of(call, session.project)
                if record is not None:
                    yield session.source, record, None

    with open_store(url, create=False) as store:
        seen = _add_all(records(), tally, _KEYS[by], inputs)
    return _result(tally, by, seen.scope(sources, 0, 0), seen.limits())


def _result(tally: Tally, by: str, scope: Scope, quality: list[Quality]) -> UsageResult:
    groups = [
        Group(name, bucket.totals())
        for name, bucket in sorted(tally.buckets.items(), key=lambda item: item[0])
    ]
    return UsageResult(
        tool=Tool(__version__, rules_version(), tally.as_of),
        scope=scope,
        by=by,
        totals=merged(tally.buckets.values()).totals(),
        groups=groups,
        data_quality=[*quality, *tally.assumptions()],
    )


_Item = tuple[str, UsageRecord, int | None]


def _add_all(
    records: Iterable[_Item], tally: Tally, key: Callable[[str, UsageRecord], str], inputs: Inputs
) -> _Seen:
    seen = _Seen()
    since, until = inputs.since, inputs.until
    for title, record, more in records:
        at = record.at
        if at is None:
            if since is not None or until is not None:
                seen.undated += more is None
                continue
        elif (since is not None and at < since) or (until is not None and at >= until):
            continue
        bucket = tally.bucket(key(title, record))
        if more is not None:
            card = tally.card(record.usage, record.provider, record.model, record.surface, at)
            tally.add_output(bucket, more, card)
            continue
        seen.calls += 1
        seen.sessions.add(record.session)
        if at is not None:
            seen.moments.add(at)
        tally.add(bucket, record.usage, record.provider, record.model, record.surface, at)
        if record.reported_cost is not None:
            tally.add_reported(bucket, record.reported_cost, record.currency)
    return seen


def _by_day(_title: str, record: UsageRecord) -> str:
    return _UNKNOWN if record.at is None else _day_name(record.at // _DAY)


@lru_cache(maxsize=64)
def _day_name(number: float) -> str:
    """Write a UTC day, counted from the epoch."""
    return day(number * _DAY).isoformat()


def _by_session(_title: str, record: UsageRecord) -> str:
    return record.session or _UNKNOWN


def _by_model(_title: str, record: UsageRecord) -> str:
    return record.model or _UNKNOWN


def _by_purpose(_title: str, record: UsageRecord) -> str:
    return record.purpose


def _by_agent(title: str, _record: UsageRecord) -> str:
    return title


def _by_project(_title: str, record: UsageRecord) -> str:
    return record.project or _UNKNOWN


_KEYS: dict[str, Callable[[str, UsageRecord], str]] = {
    "day": _by_day,
    "session": _by_session,
    "model": _by_model,
    "purpose": _by_purpose,
    "agent": _by_agent,
    "project": _by_project,
}
