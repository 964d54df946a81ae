"""Splits the time of calls: waiting for the first token, generation, tools."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cacheaudit.jobs.comparing.bootstrap import quantile
from cacheaudit.model.call import Call
from cacheaudit.report.tasks import Spread, Times


class CallTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one call went, in seconds; ``None`` is *not known*.

    Attributes:
        first_response: From the start to the first token.
        generation: From there to the end.
        whole: From the start to the end.
        tool: In tools, before the call was sent.
    """

    first_response: float | None = None
    generation: float | None = None
    whole: float | None = None
    tool: float | None = None


def call_times(call: Call) -> CallTimes:
    """Split the time of one call; what its record does not tell, or tells wrongly, is unknown."""
    start, token, end = call.started_at, call.first_token_at, call.ended_at
    return CallTimes(
        first_response=_span(start, token),
        generation=_span(token, end),
        whole=_span(start, end),
        tool=call.tool_seconds
        if call.tool_seconds is not None and call.tool_seconds >= 0
        else None,
    )


def _span(start: float | None, end: float | None) -> float | None:
    if start is None or end is None or end < start:
        return None
    return end - start


class TimeSums:
    """Times of any number of calls."""

    def __init__(self) -> None:
        self._kept: dict[str, list[float]] = {name: [] for name in CallTimes.__struct_fields__}

    def add(self, call: Call) -> None:
        """Add a call."""
        found = call_times(call)
        for name, values in self._kept.items():
            value = getattr(found, name)
            if value is not None:
                values.append(value)

    def merge(self, other: TimeSums) -> None:
        """Add the times of other calls."""
        for name, values in self._kept.items():
            values.extend(other._kept[name])

    def times(self) -> Times:
        """Shape them for the result."""
        return Times(**{name: spread(values) for name, values in self._kept.items()})


def spread(values: Sequence[float]) -> Spread:
    """Sum values up, and tell the typical and a slow one."""
    return Spread(
        calls=len(values),
        total=round(sum(values), 6) if values else None,
        p50=_rounded(quantile(values, 0.5)),
        p95=_rounded(quantile(values, 0.95)),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
