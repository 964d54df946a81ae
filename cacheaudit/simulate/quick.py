"""What sizes alone predict of a marked cache, call by call, in a few microseconds each.

The same answers as :func:`cacheaudit.simulate.run.run` gives of calls without bodies (a test holds
both against each other), worked out without requests and machines: in a lane that grows at its end
everything cached before is read, or nothing after a pause longer than the lifetime.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage
from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.build import rules_of

_DAY: Final = 86_400
_MOMENT: Final = 1e-3
_BREAKS: Final = frozenset({"compaction", "clear", "branch", "resume"})
_ISOLATION: Final = frozenset(
    {
        "workspace",
        "workspace_id",
        "account",
        "account_id",
        "organization",
        "organization_id",
        "project_id",
        "api_key_id",
        "namespace",
    }
)
_KEPT: Final = 64
_HOUR: Final = 3_600


class Predicted(msgspec.Struct, frozen=True, gc=False):
    """What a call should have read and written.

    ``why`` says why it should not have read more, in a word.
    """

    read: int
    written: int
    uncached: int
    why: str | None = None


class _Facts(msgspec.Struct, frozen=True):
    """What is needed of the rules of one model."""

    rules: Rules
    model: str
    minimum: int
    default: str
    seconds: dict[str, float]
    longest: float


class _Turn(msgspec.Struct, frozen=True, gc=False):
    """What a lane had cached after one call."""

    cached: int
    readable: float
    low: float
    high: float
    ttl: str | None
    model: str
    is_mixed: bool


_Key = tuple[str | None, str | None, str | None, int]


class NotQuick(Exception):  # noqa: N818 - no error: the general way has to be taken
    """The calls need more than sizes of a marked cache."""


class Quick(msgspec.Struct, frozen=True):
    """What sizes alone predict of one session.

    Attributes:
        calls: What each call should have read and written, by id; those in doubt are left out.
        rules: The rules that this rests on.
    """

    calls: dict[str, Predicted]
    rules: tuple[Rules, ...]


def predict_sizes(calls: Iterable[Call]) -> Quick:
    """Predict the calls of one session, in order of their start.

    Raises:
        NotQuick: A call has a body, another kind of cache, or an account of its own; or a pause
            outlasted one of several lifetimes.
    """
    found: dict[str, Predicted] = {}
    lanes: dict[str, list[_Turn]] = defaultdict(list)
    latest: dict[str, dict[str, float]] = defaultdict(dict)
    known: dict[_Key, _Facts | None] = {}
    last: tuple[str | None, str | None, str | None] | None = None
    facts: _Facts | None = None
    midnight = 0.0
    for call in calls:
        usage, span = call.usage, call.start_span
        if call.prompt is not None or (call.extra and not _ISOLATION.isdisjoint(call.extra)):
            raise NotQuick
        started = call.started_at
        if started is not None:
            low = high = started
        elif span is not None:
            low, high = span.low, span.high
        else:
            continue
        if usage is None or usage.cache_read is None or call.requests != 1:
            continue
        total = usage.total_input if usage.context_input is None else usage.context_input
        if total is None or (not total and call.error is not None):
            continue
        service = (call.provider, call.model, call.surface)
        if service != last or not 0 <= high - midnight < _DAY:  # most calls are as the one before
            number = int(high // _DAY)
            last, midnight = service, number * _DAY
            key = (*service, number)
            if key not in known:
                known[key] = _facts(call)
            facts = known[key]
        if facts is None:
            continue
        others = latest[facts.model]
        outcome = _outcome(call, usage, total, low, high, facts, lanes[call.lane], others)
        if outcome is not None:
            found[call.id] = outcome
        others[call.lane] = high
    used = {id(facts.rules): facts.rules for facts in known.values() if facts is not None}
    return Quick(found, tuple(used.values()))


def _outcome(
    call: Call,
    usage: Usage,
    total: int,
    low: float,
    high: float,
    facts: _Facts,
    turns: list[_Turn],
    others: dict[str, float],
) -> Predicted | None:
    """Predict a call, and keep it for the next of its lane.

    ``others`` holds when each lane last began a call of the same model.
    """
    parent = turns[-1] if turns else None
    if parent is not None and parent.readable > high:
        parent = _parent(turns, high)
    has_cache = usage.cache_read or usage.cache_write
    cached = total - (usage.uncached_input or 0) if has_cache else total
    begins = call.first_token_at if call.first_token_at is not None else call.ended_at
    own = _ttl(usage)
    ttl = own if own is not None or parent is None else parent.ttl
    mixed = parent is not None and (parent.is_mixed or ttl != parent.ttl)
    turns.append(
        _Turn(
            cached,
            # A comparison: a call of `max` costs as much as many of them.
            high + _MOMENT if begins is None else begins if begins > high else high,  # noqa: FURB136
            low,
            high,
            ttl,
            facts.model,
            mixed,
        )
    )
    if len(turns) > _KEPT:
        del turns[: _KEPT // 2]
    if (
        parent is None
        or usage.parts
        or total != usage.total_input
        or parent.model != facts.model
        or cached < parent.cached
        or (call.boundaries and any(b.kind in _BREAKS for b in call.boundaries))
        or not has_cache
    ):
        return None
    seconds = facts.seconds.get(parent.ttl or facts.default)
    if seconds is None:
        return None
    read, why = parent.cached, None
    if read < facts.minimum:
        read, why = 0, "below_minimum"
    elif parent.readable > high:
        read, why = 0, "not_yet_readable"
    if high - parent.low >= seconds:
        if low - parent.high < seconds or _kept_by_others(call.lane, high, others):
            return None
        if parent.is_mixed and low - parent.high < facts.longest:
            raise NotQuick  # an older part may live longer
        read, why = 0, "expired"
    if cached < facts.minimum:
        return Predicted(0, 0, total, "below_minimum")
    return Predicted(read, cached - read, total - cached, why)


def _kept_by_others(lane: str, at: float, others: dict[str, float]) -> bool:
    return any(other != lane and at - last < _HOUR for other, last in others.items())


def _parent(turns: list[_Turn], at: float) -> _Turn | None:
    """Find the last call of the lane that had begun to answer by then."""
    for turn in reversed(turns):
        if turn.readable <= at:
            return turn
    return turns[-1] if turns else None


def _ttl(usage: Usage) -> str | None:
    if usage.write_5m:
        return "5m"
    if usage.write_1h:
        return "1h"
    return usage.write_other_ttl if usage.write_other else None


def _facts(call: Call) -> _Facts | None:
    """Collect the rules of a call's model; ``None`` where none are known.

    Raises:
        NotQuick: They are those of another kind of cache.
    """
    rules = rules_of(call)
    if rules is None or rules.machine is None:
        if call.provider is None and call.model is None:
            raise NotQuick
        return None
    if rules.machine != "claude":
        raise NotQuick
    return _Facts(
        rules,
        rules.model,
        rules.integer("minimum_tokens", 1024),
        rules.text("default_ttl") or "5m",
        rules.ttl_seconds(),
        max(rules.ttl_seconds().values(), default=0.0),
    )
