"""From the tokens that an engine counted back to those of the record.

What a server reads and writes ends where a content block ends, and that end is known in both
counts. So a replay at any scale is compared exactly; only what ends inside a content block is
shared out in proportion.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from cacheaudit.report.simulation import Parts


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine did with a request.

    Attributes:
        parts: In tokens of the record.
        sent: As the server counted them.
        is_whole: What was read and written ended at the end of a content block.
        first_token_s: Seconds from the start to the first token, as the engine says; else as the
            response took.
        restore_s: Seconds spent on pages from slower memory.
        miss: The server's own word on why not more was read.
        evicted: Tokens that its rules would have read, but the engine no longer held.
    """

    parts: Parts
    sent: Parts
    is_whole: bool
    first_token_s: float
    restore_s: float | None = None
    miss: str | None = None
    evicted: int = 0


class Scale:
    """Both counts of one request.

    Args:
        recorded: Tokens of the record up to each content block.
        counted: Tokens of each content block as the server counts them.
        turns: How many of those name the speaker and stand in front of the content; other
            prompts that go on with the same speaker share them.
    """

    def __init__(
        self, recorded: Sequence[int], counted: Sequence[int], turns: Sequence[int]
    ) -> None:
        if not len(recorded) == len(counted) == len(turns):
            raise ValueError(f"{len(recorded)} content blocks recorded, {len(counted)} counted")
        self._recorded = (0, *recorded)
        self._counted = (0, *accumulate(counted))
        self._turns = turns
        self.is_whole = True

    def place(self, tokens: int) -> int:
        """Return a place of the record for one of the server's prompt."""
        index = bisect_left(self._counted, tokens)
        if index == len(self._counted):  # behind the last content block: the answer's beginning
            return self._recorded[-1]
        if self._counted[index] == tokens:
            return self._recorded[index]
        if tokens - self._counted[index - 1] <= self._turns[index - 1]:
            return self._recorded[index - 1]
        self.is_whole = False
        low, high = self._counted[index - 1], self._counted[index]
        start, end = self._recorded[index - 1], self._recorded[index]
        return start + (tokens - low) * (end - start) // (high - low)


def measured(
    body: Mapping[str, Any],
    recorded: Sequence[int],
    counted: Sequence[int],
    turns: Sequence[int],
    seconds: float,
) -> Measured | None:
    """Read a response; ``None`` where it reports no usage.

    Args:
        body: Of the response.
        recorded: Tokens of the record up to each content block.
        counted: Tokens of each content block as the server counts them.
        turns: How many of those name the speaker.
        seconds: How long the response took.
    """
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    read, uncached = _count(usage, "cache_read_input_tokens"), _count(usage, "input_tokens")
    writes = _writes(usage)
    scale = Scale(recorded, counted, turns)
    place, at = scale.place(read), read
    parts: dict[str, int] = {}
    begin = place
    for ttl, tokens in writes.items():
        at += tokens
        here = scale.place(at)
        parts[ttl], place = here - place, here
    own = body.get("cacheaudit")
    own = own if isinstance(own, dict) else {}
    engine = own.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    miss = own.get("miss")
    return Measured(
        parts=Parts(
            cache_read=begin,
            cache_write=place - begin,
            uncached_input=recorded[-1] - place,
            cache_write_by_ttl={ttl: tokens for ttl, tokens in parts.items() if tokens},
        ),
        sent=Parts(
            cache_read=read,
            cache_write=sum(writes.values()),
            uncached_input=uncached,
            cache_write_by_ttl={ttl: tokens for ttl, tokens in writes.items() if tokens},
        ),
        is_whole=scale.is_whole,
        first_token_s=_first_token(own, seconds),
        restore_s=_number(engine.get("restore_seconds")),
        miss=miss if isinstance(miss, str) else None,
        evicted=_count(own, "evicted_input_tokens"),
    )


def _writes(usage: Mapping[str, Any]) -> dict[str, int]:
    """Tokens written, in the order in which they stand in the prompt."""
    split = usage.get("cache_creation")
    if isinstance(split, dict):
        return {ttl: _count(split, f"ephemeral_{ttl}_input_tokens") for ttl in ("1h", "5m")}
    return {"5m": _count(usage, "cache_creation_input_tokens")}


def _first_token(own: Mapping[str, Any], seconds: float) -> float:
    waited, computed = _number(own.get("queue_seconds")), _number(own.get("prefill_seconds"))
    return seconds if waited is None or computed is None else waited + computed


def _count(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return value if isinstance(value, int) else 0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
