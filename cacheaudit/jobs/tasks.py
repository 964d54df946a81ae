"""The ledger of whole tasks: everything that was spent on each, whatever it was spent for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

import msgspec

from cacheaudit._version import __version__
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.common import (
    open_corpus,
    require_readable,
    rules_version,
    source_limits,
    stored_sessions,
    undated,
)
from cacheaudit.jobs.inputs import Inputs, Progress
from cacheaudit.jobs.tally import CURRENCY
from cacheaudit.jobs.tasking.gather import Gathered, Place, purposes
from cacheaudit.jobs.tasking.times import TimeSums, spread
from cacheaudit.model.call import Session
from cacheaudit.model.money import ZERO, decimal, plain
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.result import Group, Quality, Scope, Tool, Totals
from cacheaudit.report.tasks import Completions, LaneRow, TaskRow, TasksResult


def tasks(inputs: Inputs, progress: Progress) -> TasksResult:
    """Add up recorded tasks.

    The totals are those of an audit of the same records, to the last digit.

    Args:
        inputs: What to read.
        progress: Told after every session.

    Raises:
        UsageError: A named path does not exist.
        UnknownFormatError: Nothing readable was named.
        StoreError: The store cannot be read.
    """
    period = _Period(inputs)
    gathered = Gathered(PriceBook(inputs.prices))
    if inputs.db is not None and not inputs.paths:
        sources = _from_store(inputs.db, gathered, period)
        return _result(gathered, sources, 0, 0, period.limits())
    problems = Problems()
    corpus = open_corpus(inputs, problems, progress)
    for session in corpus.sessions():
        gathered.take(period.of(session))
        gathered.amend(corpus.amendments)
    gathered.amend(corpus.amendments)
    require_readable(corpus, problems)
    quality = [*source_limits(corpus, problems), *period.limits()]
    sources = dict(sorted(corpus.read_sources.items()))
    return _result(gathered, sources, len(corpus.files), corpus.total_bytes, quality)


class _Period:
    """Leaves out what lies outside a period."""

    def __init__(self, inputs: Inputs) -> None:
        self._is_open = inputs.since is None and inputs.until is None
        self._low = float("-inf") if inputs.since is None else inputs.since
        self._high = float("inf") if inputs.until is None else inputs.until
        self._undated = 0

    def of(self, session: Session) -> Session:
        """Return what of a session lies inside."""
        if self._is_open:
            return session
        dated = [call for call in session.calls if call.at is not None and not call.relative_time]
        self._undated += len(session.calls) - len(dated)
        kept = tuple(call for call in dated if self._low <= (call.at or 0.0) < self._high)
        return msgspec.structs.replace(session, calls=kept)

    def limits(self) -> list[Quality]:
        """Say what was left out."""
        return [undated(self._undated)] if self._undated else []


def _from_store(url: str, gathered: Gathered, period: _Period) -> dict[str, int]:
    from cacheaudit.store.store import open_store

    sources: dict[str, int] = {}
    with open_store(url, create=False) as store:
        for session in stored_sessions(store):
            sources[session.source] = sources.get(session.source, 0) + 1
            gathered.take(period.of(session))
    return sources


def _result(
    gathered: Gathered, sources: dict[str, int], files: int, size: int, quality: list[Quality]
) -> TasksResult:
    gathered.settle()
    places = gathered.by_task()
    rows = [_row(gathered, name, places[name]) for name in gathered.tasks]
    rows.sort(key=lambda row: (row.task is None, -_cost(row.totals)))
    times = TimeSums()
    for sums in gathered.tasks.values():
        times.merge(sums.times)
    named = [row for row in rows if row.task is not None]
    return TasksResult(
        tool=Tool(__version__, rules_version(), gathered.tally.as_of),
        scope=Scope(
            sources=sources,
            sessions=len(gathered.sessions),
            calls=sum(gathered.counts.values()),
            first=gathered.moments.first_iso,
            last=gathered.moments.last_iso,
            files=files,
            bytes=size,
        ),
        totals=gathered.sums(gathered.counts).totals(),
        by_purpose=_groups(gathered, gathered.counts),
        completions=_completions(rows),
        tasks=rows,
        times=times.times(),
        task_seconds=spread([row.seconds for row in named if row.seconds is not None]),
        data_quality=[*quality, *gathered.tally.assumptions()],
    )


def _row(gathered: Gathered, task: str | None, places: list[Place]) -> TaskRow:
    sums = gathered.tasks[task]
    return TaskRow(
        task=task,
        sessions=sorted({place.session for place in places}),
        outcome=sums.outcome,
        first=sums.moments.first_iso,
        last=sums.moments.last_iso,
        seconds=None if task is None else sums.seconds,
        calls=sums.calls,
        failed=sums.failed,
        retries=sums.retries,
        without_usage=sums.without_usage,
        totals=gathered.sums(places).totals(),
        by_purpose=_groups(gathered, places),
        lanes=list(_lanes(gathered, places)),
        times=sums.times.times(),
    )


def _lanes(gathered: Gathered, places: list[Place]) -> Iterator[LaneRow]:
    """Yield the lanes of a task; those that a lane opened follow it."""
    lanes: dict[tuple[str, str], list[Place]] = {}
    for place in places:
        lanes.setdefault((place.session, place.lane), []).append(place)
    for session, lane in sorted(lanes):
        own = lanes[session, lane]
        inside = [p for key, mine in lanes.items() if _below(key, (session, lane)) for p in mine]
        yield LaneRow(
            session=session,
            lane=lane,
            depth=sum(_below((session, lane), other) for other in lanes),
            purposes=purposes(gathered.counts, own),
            totals=gathered.sums(own).totals(),
            whole=gathered.sums([*own, *inside]).totals(),
        )


def _below(lane: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether a lane was opened inside another one of its session."""
    return lane[0] == other[0] and lane[1].startswith(f"{other[1]}/")


def _groups(gathered: Gathered, places: Iterable[Place]) -> list[Group]:
    sums = gathered.by_purpose(places)
    found = [Group(name, bucket.totals()) for name, bucket in sums.items()]
    return sorted(found, key=lambda group: (-_cost(group.totals), group.key))


def _cost(totals: Totals) -> Decimal:
    computed = totals.cost.computed
    return ZERO if computed is None else decimal(computed)


def _known_cost(rows: list[TaskRow]) -> str | None:
    """What tasks cost together; ``None`` where a call of theirs has no price or no usage."""
    if any(row.totals.cost.unpriced_calls or row.without_usage for row in rows):
        return None
    return plain(sum((_cost(row.totals) for row in rows), ZERO))


def _completions(rows: list[TaskRow]) -> Completions:
    judged = [row for row in rows if row.task is not None and row.outcome is not None]
    others = [row for row in rows if row.task is None or row.outcome is None]
    accepted = sum(row.outcome == "accepted" for row in judged)
    cost = _known_cost(judged) if judged else None
    reason = None
    if not judged:
        reason = "no task has an outcome"
    elif not accepted:
        reason = "no task was accepted"
    elif cost is None:
        reason = "a call of these tasks has no price or no usage"
    each = None
    if cost is not None and accepted:
        each = plain((decimal(cost) / accepted).quantize(Decimal("1e-9")))
    return Completions(
        accepted=accepted,
        rejected=len(judged) - accepted,
        undecided=sum(row.task is not None for row in others),
        cost=cost,
        per_accepted=each,
        undecided_cost=_known_cost(others) if others else None,
        currency=CURRENCY,
        reason=reason,
    )
