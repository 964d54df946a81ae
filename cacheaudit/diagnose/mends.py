"""Edits that stand for the fixes of rules which rest on usage, starts or names of models."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

from cacheaudit.model.call import Call, Session
from cacheaudit.model.finding import Finding
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.fan_out import FanOut
from cacheaudit.simulate.edits.keep_alive import KeepAlive, refresh_after
from cacheaudit.simulate.edits.keep_prefix import KeepPrefix
from cacheaudit.simulate.edits.model import OtherModel
from cacheaudit.simulate.edits.ttl import Ttl

_SHORT, _LONG = 300.0, 3600.0
_BESIDE: Final = ("keep_alive", "compaction", "probe", "retry")


def has_requests(session: Session) -> bool:
    """Whether the record holds requests; without, edits work on sketches of them."""
    return any(call.prompt is not None for call in session.calls)


def kept_prefix(session: Session, finding: Finding) -> Edit | None:
    """Read what the calls before had left; where requests are recorded, they say more."""
    return None if has_requests(session) else KeepPrefix(calls=finding.calls)


def are_too_long(session: Session, finding: Finding) -> bool:
    """Whether nobody would refresh over any of the pauses that a finding is about."""
    spans = [(last.started_at, call.started_at) for last, call in _pauses(session, finding)]
    return bool(spans) and all(
        start is not None and until is not None and until - start > _LONG for start, until in spans
    )


def _pauses(session: Session, finding: Finding) -> Iterator[tuple[Call, Call]]:
    """Yield the calls of a finding, each behind the call of its lane before it."""
    before: dict[str, Call] = {}
    wanted = set(finding.calls)
    for call in session.calls:
        last = before.get(call.lane)
        if call.purpose not in _BESIDE:
            before[call.lane] = call
        if call.id in wanted and last is not None:
            yield last, call


def refreshed(session: Session, finding: Finding) -> Edit | None:
    """Refresh in the pauses that a finding is about; an hour's lifetime where none is short enough.

    Pauses of more than an hour are left alone: nobody refreshes for that long. Where requests are
    recorded, they say in which pauses a tool ran, and the edits that look at that are tried.
    """
    if has_requests(session):
        return None
    first = next((c.started_at for c in session.calls if c.started_at is not None), None)
    if first is None:
        return None
    moments: list[str] = []
    refreshed_calls: list[str] = []
    for last, call in _pauses(session, finding):
        found = _moments(last, call)
        if found:
            refreshed_calls.append(last.id)
            moments += [f"{moment - first:g}" for moment in found]
    if not moments:
        return Ttl()
    return KeepAlive(at=tuple(moments), calls=tuple(refreshed_calls))


def _moments(last: Call, call: Call) -> list[float]:
    """When to refresh between two calls."""
    start, until, usage = last.started_at, call.started_at, last.usage
    if start is None or until is None or until - start > _LONG:
        return []
    every = refresh_after(_LONG if usage is not None and usage.write_1h else _SHORT)
    return [start + number * every for number in range(1, math.ceil((until - start) / every))]


def one_first(session: Session, finding: Finding) -> Edit:
    """Send one of the requests that started together first."""
    starts = [c.at for c in session.calls if c.id in finding.calls and c.at is not None]
    apart = max(starts, default=0.0) - min(starts, default=0.0)
    return FanOut() if apart <= FanOut().window else FanOut(window=float(math.ceil(apart)))


def one_model(session: Session, finding: Finding) -> Edit | None:
    """Keep the main lane with the model that it used most; a subagent's lane is left alone."""
    concerned = set(finding.calls)
    if any(call.lane != "main" for call in session.calls if call.id in concerned):
        return None
    used = Counter(call.model for call in session.calls if call.lane == "main" and call.model)
    usual = used.most_common(1)
    return OtherModel(to=usual[0][0], lanes="main") if len(used) > 1 else None
