"""Whether a session can afford to write what may never be read."""

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
