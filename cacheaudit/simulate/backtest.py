"""Lifetime settings tried on a whole history, with how often each would have lost.

One session is in memory at a time; what is kept are sums, one of them a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

import msgspec

from cacheaudit.model.call import Session
from cacheaudit.model.money import ZERO
from cacheaudit.pricing.book import PriceBook
from cacheaudit.simulate.bill import Saving
from cacheaudit.simulate.lifetimes import Judge, Judged, UnderPolicy, plus
from cacheaudit.simulate.policy import Policy


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One policy over a history.

    Attributes:
        policy: As written.
        cost: What all judged calls would have cost, refreshes included.
        saves: Against what was billed; negative where it would have cost more.
        sessions: Sessions with a choice.
        lost_sessions: Sessions that it would have made dearer.
        won_sessions: Sessions that it would have made cheaper.
        days: Days with a judged call.
        lost_days: Days that it would have made dearer.
        worst_session: Session that it would have cost most; ``None`` where none loses.
        worst: What that session would have lost; negative.
        refreshes: Refreshes sent.
        refresh_cost: What they cost; contained in ``cost``.
        reads_gained: Calls that would have read what they wrote again after a pause.
        reads_lost: Calls that would have written again what they read.
    """

    policy: str
    cost: Saving
    saves: Saving
    sessions: int
    lost_sessions: int
    won_sessions: int
    days: int
    lost_days: int
    worst_session: str | None
    worst: Saving
    refreshes: int
    refresh_cost: Saving
    reads_gained: int
    reads_lost: int


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """Policies over a history.

    Attributes:
        sessions: Sessions read.
        calls: Calls read.
        judged_calls: Calls that have a choice of lifetime and whose sizes and times are known.
        left_out: Why the others were left out, with how many.
        unpriced_calls: Judged calls without a price: they count in input equivalents only.
        billed: What the judged calls were billed, output included.
        expiries: Calls that lost their prefix to a pause.
        rewritten: Tokens that those wrote again and a longer lifetime would have let them read.
        currency: Currency of all money here; calls billed in another count as unpriced.
        outcomes: One a policy, in the order given.
    """

    sessions: int
    calls: int
    judged_calls: int
    left_out: dict[str, int]
    unpriced_calls: int
    billed: Saving
    expiries: int
    rewritten: int
    currency: str
    outcomes: tuple[Outcome, ...]


def backtest(
    history: Iterable[Session],
    policies: Sequence[Policy],
    book: PriceBook | None = None,
    currency: str = "USD",
) -> Backtest:
    """Try policies on a history.

    Args:
        history: Sessions; read once.
        policies: What to try.
        book: Prices; without them sums are input equivalents only.
        currency: Currency that money is summed in.
    """
    judge = Judge(policies, book, currency)
    tries = [_Try() for _ in policies]
    sessions = calls = judged_calls = judged_sessions = unpriced = expiries = rewritten = 0
    billed = Saving()
    for session in history:
        sessions += 1
        calls += len(session.calls)
        judged = judge.session(session)
        if not judged.calls:
            continue
        judged_sessions += 1
        judged_calls += judged.calls
        unpriced += judged.unpriced
        expiries += judged.expiries
        rewritten += judged.rewritten
        billed = plus(billed, judged.billed)
        for one, result in zip(tries, judged.policies, strict=True):
            one.add(session.id, judged, result)
    is_priced = book is not None and unpriced < judged_calls
    return Backtest(
        sessions=sessions,
        calls=calls,
        judged_calls=judged_calls,
        left_out=dict(sorted(judge.left_out.items())),
        unpriced_calls=unpriced,
        billed=_money(billed, is_priced),
        expiries=expiries,
        rewritten=rewritten,
        currency=currency,
        outcomes=tuple(
            one.outcome(policy.name, billed, judged_sessions, is_priced)
            for policy, one in zip(policies, tries, strict=True)
        ),
    )


class _Try:
    """One policy's sums."""

    def __init__(self) -> None:
        self._saves = Saving()
        self._refresh_cost = Saving()
        self._refreshes = self._gained = self._lost = 0
        self._lost_sessions = self._won_sessions = 0
        self._days: dict[int, Decimal] = {}
        self._worst: tuple[Decimal, str | None, Saving] = (ZERO, None, Saving())

    def add(self, name: str, judged: Judged, result: UnderPolicy) -> None:
        """Add one session."""
        self._saves = plus(self._saves, result.saves)
        self._refresh_cost = plus(self._refresh_cost, result.refresh_cost)
        self._refreshes += result.refreshes
        self._gained += result.reads_gained
        self._lost += result.reads_lost
        for when, saved in result.by_day.items():
            self._days[when] = self._days.get(when, ZERO) + saved
        priced = judged.unpriced < judged.calls
        rank = (result.saves.cost if priced else result.saves.input_equivalents) or ZERO
        self._lost_sessions += rank < 0
        self._won_sessions += rank > 0
        if rank < self._worst[0]:
            self._worst = (rank, name, result.saves)

    def outcome(self, policy: str, billed: Saving, sessions: int, is_priced: bool) -> Outcome:
        """Close the sums."""
        return Outcome(
            policy=policy,
            cost=_money(billed - self._saves, is_priced),
            saves=_money(self._saves, is_priced),
            sessions=sessions,
            lost_sessions=self._lost_sessions,
            won_sessions=self._won_sessions,
            days=len(self._days),
            lost_days=sum(saved < 0 for saved in self._days.values()),
            worst_session=self._worst[1],
            worst=_money(self._worst[2], is_priced),
            refreshes=self._refreshes,
            refresh_cost=_money(self._refresh_cost, is_priced),
            reads_gained=self._gained,
            reads_lost=self._lost,
        )


def _money(amounts: Saving, is_priced: bool) -> Saving:
    """Leave money out where no call has a price."""
    return amounts if is_priced else Saving(amounts.input_equivalents, None)
