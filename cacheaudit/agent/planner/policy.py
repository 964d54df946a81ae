"""What the planner may do."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

from cacheaudit.errors import ConfigError

Ttl = Literal["auto", "5m", "1h"]
_TTLS = ("auto", "5m", "1h")


class PlanPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the planner.

    Attributes:
        ttl: Lifetime of markers; ``auto``: chosen for each level from the pauses between requests
            and the model's own rates.
        complete: Add the missing markers to requests that carry some; otherwise such a request is
            sent as it is.
        move_volatile: Send system text that was seen to change behind the last marker, where the
            model allows it; otherwise it is only reported.
        stable_tools: Send tools in the order, and with the key order, in which the session saw
            them first, new ones last and sorted by name.
        stable_inputs: Send the arguments of earlier tool calls in the key order in which they were
            sent first.
        diagnostics: Ask the provider why a prefix was not reused, where it answers that.
        routing: Set ``prompt_cache_key`` where a request has none: it is a hint for routing up to
            GPT-5.5 and parts the cache from GPT-5.6 on.
        never_behind: A session that is ahead of what it would cost without markers places none
            that could put it behind. Off: the expected price alone decides.
        risk: While a session is not ahead, the part of its input that may be lost on writes that
            are never read, besides its first write.
        strict: Place a marker only where what markers have saved already, for this model and by the
            bills, pays for all that it may cost: the running total is then never above the one
            without us, whenever a program stops. What earlier sessions of the store saved counts.
        credit: With ``strict``, ordinary input tokens of each model that may be spent ahead.

    Raises:
        ConfigError: A value is out of range.
    """

    ttl: Ttl = "auto"
    complete: bool = False
    move_volatile: bool = False
    stable_tools: bool = False
    stable_inputs: bool = False
    diagnostics: bool = True
    routing: bool = True
    never_behind: bool = True
    risk: Decimal = Decimal("0.25")
    strict: bool = False
    credit: int = 0

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.ttl not in _TTLS:
            raise ConfigError(f"There is no lifetime {self.ttl!r}.", "Choose auto, 5m or 1h.")
        if not Decimal(0) <= self.risk <= 1:
            raise ConfigError(f"risk is {self.risk}.", "Give a part between 0 and 1.")
        if self.credit < 0:
            raise ConfigError(f"credit is {self.credit}.", "Give a number of tokens.")
