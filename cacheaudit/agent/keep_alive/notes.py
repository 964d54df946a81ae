"""What the keeper remembers and writes down: pauses, money, decisions and how they ended."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Final

from cacheaudit.agent.keep_alive.gaps import Gaps
from cacheaudit.agent.keep_alive.policy import Decision, Situation, details
from cacheaudit.agent.keep_alive.series import Series
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage
from cacheaudit.store.records import Decision as Entry

DECIDED: Final = "keep_alive"
REFRESHED: Final = "keep_alive_refresh"
ENDED: Final = "keep_alive_outcome"
_DAY: Final = 86_400


class Notes:
    """Guarded by the keeper's lock.

    Attributes:
        gaps: Pauses, by phase.
        entries: Decisions that are not in the store yet.
        sent: Refreshes that were sent.
        verified: Those that did what they were for.
        total: What they cost.
        stopped: Series that ended, by reason.
    """

    def __init__(self, settings: KeepAlive) -> None:
        weight = settings.prior_weight
        self.gaps: dict[str, Gaps] = {
            "running": Gaps(settings.running_prior, weight),
            "idle": Gaps(settings.idle_prior, weight),
        }
        self.entries: list[Entry] = []
        self.sent = 0
        self.verified = 0
        self.total = Decimal(0)
        self.stopped: Counter[str] = Counter()
        self._spent: dict[int, Decimal] = {}

    def spent_on(self, at: float) -> Decimal:
        """Return what refreshes cost on the UTC day of a moment."""
        return self._spent.get(int(at // _DAY), Decimal(0))

    def spend(self, at: float, amount: Decimal) -> None:
        """Charge a refresh to its day."""
        day = int(at // _DAY)
        if amount < 0 and day not in self._spent:
            return  # put right on the day after: that day's account is closed
        self._spent = {day: self._spent.get(day, Decimal(0)) + amount}

    def decided(self, found: Decision, situation: Situation, call: Call, at: float) -> None:
        """Note a decision with both prices: of refreshing, and of leaving it, as expected."""
        refreshing = found.refresh_cost
        leaving = found.miss_cost * Decimal(repr(found.probability))
        is_warm = found.action == "warm"
        self.entries.append(
            Entry(
                session=found.session,
                call=call.id,
                at=at,
                kind=DECIDED,
                action="warm" if is_warm else "stop",
                alternative="stop" if is_warm else "warm",
                action_price=refreshing if is_warm else leaving,
                alternative_price=leaving if is_warm else refreshing,
                currency=found.currency,
                details=details(found, situation),
            )
        )

    def refreshed(
        self,
        lane: tuple[str, str],
        series: Series,
        usage: Usage | None,
        reason: str,
        cost: Decimal | None,
        at: float,
    ) -> None:
        """Note what a refresh really read, wrote and cost."""
        self.verified += reason == "verified"
        if cost is not None:
            self.total += cost
        stakes = series.stakes
        self.entries.append(
            Entry(
                session=lane[0],
                call=series.call.id,
                at=at,
                kind=REFRESHED,
                action=reason,
                alternative="stop",
                action_price=cost,
                currency="USD" if stakes is None else stakes.currency,
                details={
                    "lane": lane[1],
                    "number": series.refreshes,
                    "cache_read": None if usage is None else usage.cache_read,
                    "cache_write": None if usage is None else usage.cache_write,
                },
            )
        )

    def ended(
        self, lane: tuple[str, str], series: Series, following: Call | None, at: float
    ) -> None:
        """Note what a series brought, once it is known whether a request came back."""
        stakes = series.stakes
        if not series.refreshes or stakes is None:
            return
        gap, saved = None, Decimal(0)
        if following is not None and following.started_at is not None:
            gap = following.started_at - series.flight.started_at
            if gap > stakes.ttl:
                saved = avoided(following, stakes.read_tokens - stakes.lost_tokens, series)
        self.entries.append(
            Entry(
                session=lane[0],
                call=None if following is None else following.id,
                at=at,
                kind=ENDED,
                action="returned" if following is not None else "not_returned",
                alternative="let_expire",
                action_price=series.spent,
                alternative_price=saved,
                currency=stakes.currency,
                details={
                    "lane": lane[1],
                    "refreshes": series.refreshes,
                    "gap_seconds": None if gap is None else round(gap, 3),
                    "gain": str(saved - series.spent),
                },
            )
        )


def avoided(following: Call, front: int, series: Series) -> Decimal:
    """Return what the call that came back would have paid more without refreshes.

    Args:
        following: The call.
        front: Tokens that would have been there still, having a longer lifetime.
        series: The refreshes before it.
    """
    stakes = series.stakes
    read = None if following.usage is None else following.usage.cache_read
    if stakes is None or read is None:
        return Decimal(0)
    kept = max(0, min(read, stakes.read_tokens) - front)
    return kept * (stakes.write - stakes.read)
