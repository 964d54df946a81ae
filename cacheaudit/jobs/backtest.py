"""Lifetime settings tried on a whole history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

import msgspec

from cacheaudit._version import __version__
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.common import (
    Moments,
    open_corpus,
    require_readable,
    rules_version,
    source_limits,
)
from cacheaudit.jobs.inputs import Inputs, Progress
from cacheaudit.model.call import Session
from cacheaudit.model.money import plain
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.backtest import BacktestResult, PolicyRow
from cacheaudit.report.result import Quality, SavingRow, Scope, Tool
from cacheaudit.simulate.backtest import Outcome
from cacheaudit.simulate.backtest import backtest as tried
from cacheaudit.simulate.bill import Saving
from cacheaudit.simulate.policy import USUAL, parse_policy


def backtest(
    inputs: Inputs, progress: Progress, policies: Iterable[str] = (), currency: str = "USD"
) -> BacktestResult:
    """Try lifetime settings on everything that was recorded.

    Args:
        inputs: What to read.
        progress: Told after every session.
        policies: Settings as people write them; none: the usual ones.
        currency: Currency to sum in.

    Raises:
        UsageError: A policy cannot be read, or a named path does not exist.
        UnknownFormatError: Nothing readable was named.
    """
    wanted = [parse_policy(text) for text in dict.fromkeys(policies)] or [
        parse_policy(text) for text in USUAL
    ]
    book = PriceBook(inputs.prices)
    reader = _Reader(inputs)
    found = tried(reader.sessions(progress), wanted, book, currency)
    rows = [_row(outcome) for outcome in found.outcomes]
    settable = [
        outcome
        for outcome, policy in zip(found.outcomes, wanted, strict=True)
        if not policy.needs_foresight
    ]
    best = max(settable, key=lambda outcome: outcome.saves.rank, default=None)
    return BacktestResult(
        tool=Tool(__version__, rules_version(), book.as_of),
        scope=reader.scope(found.sessions, found.calls),
        judged_calls=found.judged_calls,
        left_out=found.left_out,
        unpriced_calls=found.unpriced_calls,
        billed=_saving(found.billed),
        currency=currency,
        expiries=found.expiries,
        rewritten_tokens=found.rewritten,
        policies=rows,
        best=best.policy if best is not None and best.saves.rank > 0 else None,
        data_quality=reader.quality,
    )


class _Reader:
    """Yields sessions from files or a store, within the time asked for."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._moments = Moments()
        self._sources: dict[str, int] = {}
        self._files = self._bytes = 0
        self.quality: list[Quality] = []

    def sessions(self, progress: Progress) -> Iterator[Session]:
        """Yield every session once."""
        inputs = self._inputs
        if inputs.db is not None and not inputs.paths:
            from cacheaudit.store.store import open_store

            with open_store(inputs.db, create=False) as store:
                for session in store.sessions():
                    self._sources[session.source] = self._sources.get(session.source, 0) + 1
                    yield from self._in_time(session)
            return
        problems = Problems()
        corpus = open_corpus(inputs, problems, progress)
        for session in corpus.sessions():
            corpus.amendments.clear()
            yield from self._in_time(session)
        require_readable(corpus, problems)
        self._sources = dict(sorted(corpus.read_sources.items()))
        self._files, self._bytes = len(corpus.files), corpus.total_bytes
        self.quality = source_limits(corpus, problems)

    def _in_time(self, session: Session) -> Iterator[Session]:
        since, until = self._inputs.since, self._inputs.until
        calls = session.calls
        if since is not None or until is not None:
            calls = tuple(
                call
                for call in calls
                if call.at is not None
                and (since is None or call.at >= since)
                and (until is None or call.at < until)
            )
        if not calls:
            return
        for call in calls:
            if call.at is not None and not call.relative_time:
                self._moments.add(call.at)
        yield session if calls is session.calls else msgspec.structs.replace(session, calls=calls)

    def scope(self, sessions: int, calls: int) -> Scope:
        """Say what was read."""
        return Scope(
            sources=self._sources,
            sessions=sessions,
            calls=calls,
            first=self._moments.first_iso,
            last=self._moments.last_iso,
            files=self._files,
            bytes=self._bytes,
        )


def _row(outcome: Outcome) -> PolicyRow:
    return PolicyRow(
        policy=outcome.policy,
        cost=_saving(outcome.cost),
        saves=_saving(outcome.saves),
        sessions=outcome.sessions,
        lost_sessions=outcome.lost_sessions,
        won_sessions=outcome.won_sessions,
        days=outcome.days,
        lost_days=outcome.lost_days,
        lost_sessions_share=_share(outcome.lost_sessions, outcome.sessions),
        lost_days_share=_share(outcome.lost_days, outcome.days),
        worst_session=outcome.worst_session,
        worst=None if outcome.worst_session is None else _saving(outcome.worst),
        refreshes=outcome.refreshes,
        refresh_cost=_saving(outcome.refresh_cost),
        reads_gained=outcome.reads_gained,
        reads_lost=outcome.reads_lost,
    )


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _saving(saving: Saving) -> SavingRow:
    return SavingRow(_text(saving.input_equivalents), _text(saving.cost))


def _text(value: Decimal | None) -> str | None:
    return None if value is None else plain(value)
