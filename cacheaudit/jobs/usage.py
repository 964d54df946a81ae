"""Totals only: the fast path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from cacheaudit._version import __version__
from cacheaudit.errors import UsageError
from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.records import UsageRecord
from cacheaudit.jobs.common import (
    Moments,
    open_corpus,
    require_readable,
    rules_version,
    source_limits,
)
from cacheaudit.jobs.inputs import Inputs, Progress
from cacheaudit.jobs.tally import Tally, merged
from cacheaudit.model.clock import day
from cacheaudit.model.ports import Source
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.result import Group, Scope, Tool, UsageResult

GroupBy = Literal["day", "session", "model", "purpose", "agent", "project"]
GROUPS: tuple[GroupBy, ...] = get_args(GroupBy)
_UNKNOWN = "unknown"


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
    problems = Problems()
    tally = Tally(PriceBook(inputs.prices))
    corpus = open_corpus(inputs, problems, progress)
    moments, calls, sessions = _add_all(corpus, tally, key, inputs)
    require_readable(corpus, problems)
    groups = [
        Group(name, bucket.totals())
        for name, bucket in sorted(tally.buckets.items(), key=lambda item: item[0])
    ]
    return UsageResult(
        tool=Tool(__version__, rules_version(), tally.as_of),
        scope=Scope(
            sources=dict(sorted(corpus.read_sources.items())),
            sessions=sessions,
            calls=calls,
            first=moments.first_iso,
            last=moments.last_iso,
            files=len(corpus.files),
            bytes=corpus.total_bytes,
        ),
        by=by,
        totals=merged(tally.buckets.values()).totals(),
        groups=groups,
        data_quality=source_limits(corpus, problems),
    )


def _add_all(
    corpus: Corpus, tally: Tally, key: Callable[[Source, UsageRecord], str], inputs: Inputs
) -> tuple[Moments, int, int]:
    moments = Moments()
    calls = 0
    sessions: set[str] = set()
    since, until = inputs.since, inputs.until
    for source, record, more in corpus.usages():
        at = record.at
        if (since is not None and (at is None or at < since)) or (
            until is not None and (at is None or at >= until)
        ):
            continue
        bucket = tally.bucket(key(source, record))
        if more is not None:
            card = tally.card(record.usage, record.provider, record.model, record.surface, at)
            tally.add_output(bucket, more, card)
            continue
        calls += 1
        sessions.add(record.session)
        if at is not None:
            moments.add(at)
        tally.add(bucket, record.usage, record.provider, record.model, record.surface, at)
        if record.reported_cost is not None:
            tally.add_reported(bucket, record.reported_cost, record.currency)
    return moments, calls, len(sessions)


def _by_day(_source: Source, record: UsageRecord) -> str:
    return _UNKNOWN if record.at is None else day(record.at).isoformat()


def _by_session(_source: Source, record: UsageRecord) -> str:
    return record.session or _UNKNOWN


def _by_model(_source: Source, record: UsageRecord) -> str:
    return record.model or _UNKNOWN


def _by_purpose(_source: Source, record: UsageRecord) -> str:
    return record.purpose


def _by_agent(source: Source, _record: UsageRecord) -> str:
    return source.title


def _by_project(_source: Source, record: UsageRecord) -> str:
    return record.project or _UNKNOWN


_KEYS: dict[str, Callable[[Source, UsageRecord], str]] = {
    "day": _by_day,
    "session": _by_session,
    "model": _by_model,
    "purpose": _by_purpose,
    "agent": _by_agent,
    "project": _by_project,
}
