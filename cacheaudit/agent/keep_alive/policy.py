"""Decides whether a prompt is refreshed now. No clock, no network, no state."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

from cacheaudit.agent.keep_alive.economy import Stakes
from cacheaudit.agent.keep_alive.gaps import Gaps
from cacheaudit.agent.keep_alive.settings import KeepAlive

Phase = Literal["running", "idle"]
_IDLE_CAP: Final = 1_800.0
_HORIZON: Final = 64


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt whose refresh is due.

    Attributes:
        stakes: What is at stake.
        phase: ``running``: a tool of the agent runs; ``idle``: its run is over.
        elapsed: Seconds since the start of the real request.
        lives_until: Seconds after that start at which the entry expires.
        late: Seconds since the refresh was due.
        refreshes: How many were sent since the real request.
        spent_today: What refreshes cost today.
    """

    stakes: Stakes
    phase: Phase
    elapsed: float
    lives_until: float
    late: float = 0.0
    refreshes: int = 0
    spent_today: Decimal = Decimal(0)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether to refresh, and the figures that it rests on.

    Attributes:
        action: ``warm`` or ``stop``.
        reason: Why, in one word.
        refresh_cost: Price of the refresh.
        miss_cost: What a miss would cost beyond a read.
        probability: How likely a request is to come while what this and later planned refreshes
            buy lasts, and after the entry would have expired without them.
        expected_savings: What refreshing is expected to save, its own cost taken off.
        planned: Refreshes, this one included, at which that is greatest.
        currency: ISO code.
        session: Session of the prompt.
        lane: Its lane.
    """

    action: Literal["warm", "stop"]
    reason: str
    refresh_cost: Decimal
    miss_cost: Decimal
    probability: float
    expected_savings: Decimal
    planned: int
    currency: str = "USD"
    session: str = ""
    lane: str = ""


def cap_of(settings: KeepAlive, phase: Phase, every: float) -> float:
    """Return the seconds after the real request behind which nothing is refreshed."""
    if phase == "running":
        return settings.running_cap
    return max(_IDLE_CAP, every) if settings.idle_cap is None else settings.idle_cap


def decide(situation: Situation, settings: KeepAlive, gaps: Gaps) -> Decision:
    """Decide whether to send a refresh now.

    It is sent where, over the best number of refreshes from here, the misses that they prevent
    are expected to cost more than they do, by at least ``settings.min_savings``.
    """
    stakes = situation.stakes
    probability, savings, planned = best_plan(situation, settings, gaps)
    reason = _obstacle(situation, settings)
    if reason is None and savings < settings.min_savings:
        reason = "not_worth_it"
    return Decision(
        action="warm" if reason is None else "stop",
        reason=reason or "worth_it",
        refresh_cost=stakes.refresh_cost,
        miss_cost=stakes.miss_cost,
        probability=probability,
        expected_savings=savings,
        planned=planned,
        currency=stakes.currency,
    )


def _obstacle(situation: Situation, settings: KeepAlive) -> str | None:
    stakes = situation.stakes
    limit = settings.budget_per_day
    if settings.mode == "off" or (settings.mode == "running" and situation.phase == "idle"):
        return "not_running"
    if situation.late > stakes.grace:
        return "late"
    # A timer that fires a little late does not make a refresh that was due in time one too many.
    if situation.elapsed - situation.late > cap_of(settings, situation.phase, stakes.every):
        return "cap"
    if situation.refreshes >= _most(situation, settings):
        return "refreshes_spent"
    if limit is not None and situation.spent_today + stakes.refresh_cost > limit:
        return "budget"
    return None


def _most(situation: Situation, settings: KeepAlive) -> int:
    most = situation.stakes.affordable
    return most if settings.most_refreshes is None else min(most, settings.most_refreshes)


def best_plan(situation: Situation, settings: KeepAlive, gaps: Gaps) -> tuple[float, Decimal, int]:
    """Weigh every number of refreshes from here.

    Returns:
        Probability that they prevent a miss, expected saving, number of refreshes.
    """
    stakes = situation.stakes
    now = situation.elapsed
    cap = cap_of(settings, situation.phase, stakes.every)
    left = max(1, min(_most(situation, settings) - situation.refreshes, _HORIZON))
    sent = [now + k * stakes.every for k in range(left)]
    sent = sent[:1] + [at for at in sent[1:] if at <= cap]
    ends = [max(situation.lives_until, now), *(at + stakes.ttl for at in sent)]
    points = sorted({now, *sent, *ends})
    alive = dict(zip(points, gaps.survival(points, stakes.every), strict=True))
    best = (0.0, -stakes.refresh_cost, 1)
    probability, cost = 0.0, 0.0
    for k, at in enumerate(sent):
        probability += alive[ends[k]] - alive[ends[k + 1]]
        cost += alive[at]
        savings = _times(stakes.miss_cost, probability) - _times(stakes.refresh_cost, cost)
        if k == 0 or savings > best[1]:
            best = (probability, savings, k + 1)
    return best


def _times(amount: Decimal, factor: float) -> Decimal:
    return amount * Decimal(repr(factor))


def details(decision: Decision, situation: Situation) -> dict[str, Any]:
    """Return the figures of a decision for the store."""
    stakes = situation.stakes
    return {
        "reason": decision.reason,
        "phase": situation.phase,
        "lane": decision.lane,
        "idle_seconds": round(situation.elapsed, 3),
        "late_seconds": round(situation.late, 3),
        "lifetime_seconds": stakes.ttl,
        "read_tokens": stakes.read_tokens,
        "lost_tokens": stakes.lost_tokens,
        "refreshes": situation.refreshes,
        "affordable": stakes.affordable,
        "planned": decision.planned,
        "probability": round(decision.probability, 6),
        "miss_cost": str(decision.miss_cost),
        "expected_savings": str(decision.expected_savings),
    }
