"""Gaps between calls as intervals, against the lifetime that cached content has.

The clock of a lifetime starts when the request that wrote or read begins, not when its response
ends: a generation of four minutes leaves one minute of five.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage

TTL_SECONDS = {"5m": 300, "30m": 1_800, "1h": 3_600, "12h": 43_200}
# A request is long from this part of a lifetime on; a shorter one used up nothing worth telling.
LONG_SHARE = 10
# Providers whose explicit markers have a documented default lifetime.
_DEFAULTS = {"anthropic": 300, "bedrock": 300, "minimax": 300, "qwen": 300, "openai": 1_800}

State = Literal["over", "under", "open", "unknown"]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long a prefix had not been touched, and how long it lives.

    Attributes:
        low: Least seconds from the previous call's start to this call's start.
        high: Most seconds; equal to ``low`` where both starts are exact.
        ttl: Lifetime in force, in seconds.
        ttl_assumed: The record does not tell the lifetime; the provider's default was taken.
        idle: Seconds from the end of the previous response to this start, where known.
        longest_hit: Longest gap in the lane after which everything was still read.
        overlaps: This call began before the previous one can have been readable.
    """

    low: float | None = None
    high: float | None = None
    ttl: int | None = None
    ttl_assumed: bool = False
    idle: float | None = None
    longest_hit: float = 0.0
    overlaps: bool = False

    @classmethod
    def between(
        cls, before: Call, call: Call, ttl: int | None, ttl_assumed: bool, longest_hit: float
    ) -> Timing:
        """Measure the gap between two calls of a lane."""
        first, second = before.start_bounds, call.start_bounds
        if first is None or second is None:
            return cls(ttl=ttl, ttl_assumed=ttl_assumed, longest_hit=longest_hit)
        idle = None
        if before.ended_at is not None:
            idle = second.low - before.ended_at
        return cls(
            low=second.low - first.high,
            high=second.high - first.low,
            ttl=ttl,
            ttl_assumed=ttl_assumed,
            idle=idle,
            longest_hit=longest_hit,
            overlaps=overlap(before, call),
        )

    @property
    def state(self) -> State:
        """Whether the gap is surely over the lifetime, surely under it, or either is possible."""
        if self.low is None or self.high is None or self.ttl is None:
            return "unknown"
        if self.low > self.ttl:
            return "over"
        return "under" if self.high < self.ttl else "open"

    @property
    def contradicted(self) -> bool:
        """Whether everything was read after a longer gap in the same lane, beyond the lifetime."""
        return (
            self.ttl is not None
            and self.high is not None
            and self.longest_hit > self.ttl
            and self.longest_hit >= self.high
        )

    @property
    def eaten_by_request(self) -> bool:
        """Whether the pause alone was shorter than the lifetime: a long response took the rest."""
        if self.state != "over" or self.ttl is None or self.idle is None or self.low is None:
            return False
        return 0 <= self.idle < self.ttl and (self.low - self.idle) * LONG_SHARE >= self.ttl


def overlap(before: Call, call: Call, same_moment: float = 1.0) -> bool:
    """Whether a call certainly began before the response of an earlier one did.

    An entry can be read once the response that writes it has begun. Where no time of the response
    is known, only calls that start in the same moment count.
    """
    first, second = before.start_bounds, call.start_bounds
    if first is None or second is None:
        return False
    readable = before.first_token_at
    if readable is None:
        # Only the end is known: the response began somewhere before it. Same moment is sure.
        return abs(second.high - first.low) <= same_moment and abs(second.low - first.high) <= (
            same_moment
        )
    return second.high < readable


def default_ttl(call: Call, usage: Usage) -> tuple[int | None, bool]:
    """Lifetime of a write without a 5m or 1h label, and whether it is assumed."""
    if usage.write_12h:
        return TTL_SECONDS["12h"], False
    if usage.write_30m:
        return TTL_SECONDS["30m"], False
    if usage.write_other_ttl is not None and usage.write_other_ttl in TTL_SECONDS:
        return TTL_SECONDS[usage.write_other_ttl], True
    provider = call.provider or ("anthropic" if usage.dialect != "openai" else "openai")
    return _DEFAULTS.get(provider), True


def seconds_of(value: float) -> str:
    """Write seconds for people: ``35 s``, ``5 min 35 s``, ``12 h 15 min``."""
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    minutes, seconds = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
