"""Whether a session, and all that was ever sent, can afford to write what may never be read."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from cacheaudit.agent.planner.forecast import Forecast
from cacheaudit.agent.planner.lifetime import Rates

_ONE: Final = Decimal(1)
_ZERO: Final = Decimal(0)


def gain(found: Forecast, rates: Rates) -> Decimal:
    """Return what markers save in one request, in ordinary input tokens; negative: what they cost.

    Compared is the same request without any marker.
    """
    saved = (_ONE - rates.read) * found.read
    return saved - sum(
        ((rates.writes.get(ttl, _ONE) - _ONE) * tokens for ttl, tokens in found.writes.items()),
        _ZERO,
    )


class Pool:
    """What markers have really saved for one model, in tokens of the provider.

    A request that is on its way counts as if nothing of it were read: whatever comes, the sum of
    what was paid is never above what it would have been without markers and the credit.

    Args:
        credit: What may be spent ahead.
    """

    def __init__(self, credit: int = 0) -> None:
        self.balance = Decimal(credit)
        self.reserved = _ZERO

    def affords(self, worst: Decimal) -> bool:
        """Whether a request may be sent that costs so much if nothing of it is read."""
        return worst <= 0 or self.balance - self.reserved >= worst

    def reserve(self, worst: Decimal) -> None:
        """Set aside what a request may cost."""
        self.reserved += worst

    def settle(self, worst: Decimal, real: Decimal | None) -> None:
        """Enter what came of a request.

        Args:
            worst: What was set aside.
            real: What it saved by its bill; ``None``: not known, so that the worst is assumed.
        """
        self.reserved -= worst
        self.balance += -worst if real is None else real


class Account:
    """What a session has saved so far by its markers.

    A session that is ahead stays ahead; one that is not may lose the premium of its first write and
    a part of its input, no more.

    Args:
        risk: That part.
        strict: Whether all this holds; else the expected price alone decides.
    """

    def __init__(self, risk: Decimal, *, strict: bool = True) -> None:
        self._risk = risk
        self._strict = strict
        self.balance = _ZERO
        self.input = 0
        self._opening: Decimal | None = None

    @property
    def floor(self) -> Decimal | None:
        """Least that the balance may become; ``None``: nothing was written yet."""
        if self.balance > 0:
            return _ZERO
        return None if self._opening is None else -(self._opening + self._risk * self.input)

    def allows(self, amount: Decimal) -> bool:
        """Whether a request may be sent that saves so much, or costs so much if negative."""
        if not self._strict or amount >= 0:
            return True
        floor = self.floor
        return floor is None or self.balance + amount >= floor

    def book(self, amount: Decimal, tokens: int) -> None:
        """Enter a request.

        Args:
            amount: What its markers save.
            tokens: Its size.
        """
        if amount < 0 and self._opening is None:
            self._opening = -amount
        self.balance += amount
        self.input += tokens

    def correct(self, amount: Decimal) -> None:
        """Enter the difference between what was foretold and what came."""
        self.balance += amount
