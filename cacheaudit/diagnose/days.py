"""The day from which on writes have another lifetime, over all sessions of an audit."""

from __future__ import annotations

import datetime as dt

from cacheaudit.diagnose.rule import find_rule
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding
from cacheaudit.model.plural import plural

_DAY = 86_400
# Days before and behind the change that have to agree, and tokens that a day needs to count.
_AGREE = 2
_TOKENS = 20_000
_NAME = "lifetime-changed"


class Days:
    """Tokens written by lifetime and day."""

    def __init__(self) -> None:
        self._sums: dict[int, list[int]] = {}

    def add(self, session: Session, five: int, hour: int) -> None:
        """Add a session, whole, to the day on which it began."""
        first = session.calls[0] if session.calls else None
        if first is None or first.at is None or first.relative_time or not five + hour:
            return
        sums = self._sums.setdefault(int(first.at // _DAY), [0, 0])
        sums[0] += five
        sums[1] += hour

    def finding(self) -> Finding | None:
        """Tell the day from which on one-hour writes stopped or began for good."""
        days = sorted(day for day, sums in self._sums.items() if sum(sums) >= _TOKENS)
        for has_hour_before in (True, False):
            place = self._change(days, has_hour_before)
            if place is not None:
                return self._said(days[:place], days[place:], has_hour_before)
        return None

    def _change(self, days: list[int], has_hour_before: bool) -> int | None:
        """Position of the first day of the new lifetime; ``None`` where days do not agree."""
        marks = [self._sums[day][1] * 5 >= sum(self._sums[day]) for day in days]
        none = [self._sums[day][1] == 0 for day in days]
        for place in range(_AGREE, len(days) - _AGREE + 1):
            old, new = (
                (marks[:place], none[place:]) if has_hour_before else (none[:place], marks[place:])
            )
            if all(old) and all(new):
                return place
        return None

    def _said(self, old: list[int], new: list[int], has_hour_before: bool) -> Finding:
        rule = find_rule(_NAME)
        assert rule is not None  # noqa: S101 - a rule of this package
        word = "stopped" if has_hour_before else "began"
        day = dt.date(1970, 1, 1) + dt.timedelta(days=new[0])
        before, after = self._share(old), self._share(new)
        return Finding(
            id=f"{rule.id}:across:days",
            rule=rule.id,
            name=rule.name,
            title=f"One-hour writes {word} on {day}",
            verdict="proved",
            evidence="usage",
            calls=(),
            established=(
                f"On {plural(len(old), 'day')} before {day}: {before}.",
                f"On {plural(len(new), 'day')} from {day} on: {after}.",
            ),
            to_check=(
                "Whether the client program was updated, or a setting or plan changed, that day.",
            ),
            fix=rule.fix,
            kind="note",
        )

    def _share(self, days: list[int]) -> str:
        five = sum(self._sums[day][0] for day in days)
        hour = sum(self._sums[day][1] for day in days)
        return f"{count(five)} tokens written for five minutes, {count(hour)} for one hour"
