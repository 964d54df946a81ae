"""Requests from usage alone: no bodies, only how large each prompt was and what was billed.

A lane is taken to grow at its end: a call's prompt begins with the cached part of the last call of
its lane that had begun to answer before it started. What the numbers cannot say is refused, not
guessed: a first call, a prompt that shrank, another model, a pause that may or may not have
outlasted the lifetime. :class:`Known` adds what a user knows besides the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from cacheaudit.model.call import Call, Span
from cacheaudit.model.prompt import Level, digest
from cacheaudit.model.usage import Usage
from cacheaudit.providers.facts import Rules
from cacheaudit.simulate.build import Built, Refusal, assumed_rules, rules_of, scope_of, unusable
from cacheaudit.simulate.request import Mark, SimRequest

_KEPT_TURNS: Final = 64
_MOMENT: Final = 1e-3
MARKED: Final = frozenset({"claude", "qwen", "minimax"})
_BREAKS: Final = frozenset({"compaction", "clear", "branch", "resume"})


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a call that its usage does not say.

    Attributes:
        static: Tokens of tools and system, which bear a marker of their own; holds for later
            calls of the lane until it is said anew.
        changed: First level that differs from the call before; another ``static`` says ``tools``.
        setting: Value of a setting that messages depend on, such as a forced ``tool_choice``; for
            this call only.
        positions: Positions that were added since the call before.
        cold: Nothing was cached before this call.
    """

    static: int | None = None
    changed: Level | None = None
    setting: str | None = None
    positions: int | None = None
    cold: bool = False


_NOTHING: Final = Known()


class _Turn(msgspec.Struct, frozen=True):
    """What a lane had cached after one call."""

    model: str
    span: Span
    readable: float
    ttl: str | None
    static: int
    labels: tuple[bytes, ...]
    sums: tuple[int, ...]

    @property
    def cached(self) -> int:
        """Tokens up to the last marker."""
        return self.sums[-1] if self.sums else 0


class SizesLanes:
    """Builds requests for calls without a body.

    Args:
        known: What else is known, by call id.
    """

    def __init__(self, known: Mapping[str, Known]) -> None:
        self._known = known
        self._lanes: dict[tuple[str, str], list[_Turn]] = {}
        self._activity = _Activity()

    def build(self, call: Call, told: Told) -> Built:
        """Build one request; its call must not start before those built already."""
        known = self._known.get(call.id, _NOTHING)
        turns = self._lanes.setdefault((call.session, call.lane), [])
        parent = _latest(turns, told.span.high)
        turn = _turn(call, told, known, parent)
        doubt = _doubt(call, told, known, parent, self._activity)
        _keep(turns, turn)
        self._activity.note(told, call)
        return Built(_as_request(call, turn, known, told), told.facts, "recorded", 0, doubt=doubt)


class Told(msgspec.Struct, frozen=True):
    """What the record of a call without a body tells.

    Attributes:
        usage: Its usage.
        total: Tokens of its prompt.
        cached: Those up to its last marker.
        span: Interval that holds its start.
        readable: When what it wrote can be read.
        facts: Rules in force.
        scope: Cache that it used.
    """

    usage: Usage
    total: int
    cached: int
    span: Span
    readable: float
    facts: Rules
    scope: str


def told_of(call: Call) -> Told | Refusal:
    """Read a record, or say what it lacks."""
    reason = unusable(call)
    if reason is not None:
        return reason
    usage = call.usage
    if usage is None or usage.cache_read is None or (total := usage.prompt_size) is None:
        return Refusal(call.id, "no_usage", "the input or the cache read is not recorded")
    facts = rules_of(call) or assumed_rules(call)
    if facts is None or facts.machine is None:
        return Refusal(call.id, "unknown_rules", "no cache rules are known of the model")
    span = call.start_bounds
    if span is None:
        return Refusal(call.id, "no_start_time", "the start of the request is not known")
    begins = call.first_token_at if call.first_token_at is not None else call.ended_at
    readable = span.high + _MOMENT if begins is None else max(begins, span.high)
    cached = total - _tail(usage, facts)
    return Told(usage, total, cached, span, readable, facts, scope_of(call, facts))


class _Activity:
    """When each cache was last used, and by which lane."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[tuple[str, str], float]] = {}
        self._other: dict[str, tuple[tuple[str, str], float]] = {}

    def note(self, told: Told, call: Call) -> None:
        """Note a call; calls come in order of their start."""
        lane, scope = (call.session, call.lane), told.scope
        last = self._last.get(scope)
        if last is not None and last[0] != lane:
            self._other[scope] = last
        self._last[scope] = (lane, told.span.high)

    def by_others(self, scope: str, call: Call) -> float:
        """Return the last use by another lane than this call's."""
        lane = (call.session, call.lane)
        for found in (self._last.get(scope), self._other.get(scope)):
            if found is not None and found[0] != lane:
                return found[1]
        return float("-inf")


def _turn(call: Call, told: Told, known: Known, parent: _Turn | None) -> _Turn:
    """Extend the parent's prompt by what is new."""
    static = known.static or (parent.static if parent is not None else 0)
    labels, sums = _inherited(call, known, parent, static)
    held = sums[-1] if sums else 0
    if parent is not None and told.cached < held:  # shrank: other messages
        labels, sums = labels[: bool(static)], sums[: bool(static)]
        held = sums[-1] if sums else 0
    if not sums or told.cached > held or known.positions:
        for number in range(known.positions or 1):
            labels += (f"{call.session}/{call.lane}/{call.id}/{number}".encode(),)
            sums += (max(told.cached, held),)
    return _Turn(
        model=told.facts.model,
        span=told.span,
        readable=told.readable,
        ttl=ttl_of(told.usage) or (parent.ttl if parent is not None else None),
        static=static,
        labels=labels,
        sums=sums,
    )


def _doubt(
    call: Call, told: Told, known: Known, parent: _Turn | None, activity: _Activity
) -> Refusal | None:
    """Say why the numbers do not tell what the cache held."""
    usage, facts, cached = told.usage, told.facts, told.cached
    if usage.parts or told.total != usage.total_input:
        return Refusal(call.id, "several_passes", "the usage sums up several model passes")
    if parent is None:
        if known.cold:
            return None
        return Refusal(call.id, "first_of_lane", "what was cached before is not recorded")
    if parent.model != facts.model:
        return Refusal(call.id, "model_changed", f"{parent.model} before, {facts.model} now")
    if call.boundaries and known.changed is None:
        broken = [b.kind for b in call.boundaries if b.kind in _BREAKS]
        if broken:
            return Refusal(call.id, "prefix_unknown", f"{broken[0]} before this call")
    if cached < parent.cached and known.changed is None:
        text = f"{parent.cached} tokens cached before, {cached} now"
        return Refusal(call.id, "prompt_shrank", text)
    if facts.machine in MARKED and not usage.cache_read and not usage.cache_write:
        return Refusal(call.id, "no_cache_use", "markers or size may be missing")
    return _lifetime_doubt(call, told, parent, activity)


def _lifetime_doubt(call: Call, told: Told, parent: _Turn, activity: _Activity) -> Refusal | None:
    span, lifetimes = told.span, told.facts.lifetimes
    seconds = lifetimes.get(parent.ttl or told.facts.text("default_ttl") or "")
    most = span.high - parent.span.low
    if seconds is None or most < seconds:
        return None
    least = span.low - parent.span.high
    if least < seconds:
        text = f"{least:.0f} to {most:.0f} s since the last call, lifetime {seconds:.0f} s"
        return Refusal(call.id, "lifetime_unclear", text)
    if span.high - activity.by_others(told.scope, call) < max(lifetimes.values()):
        return Refusal(call.id, "kept_by_others", "other lanes may have kept a prefix alive")
    return None


def _as_request(call: Call, turn: _Turn, known: Known, told: Told) -> SimRequest:
    """Write a turn as the machine wants it; what follows the last marker is one block."""
    front = 1 if turn.static else 0
    digests = list(turn.labels)
    if known.setting is not None:
        salt = f"|{known.setting}".encode()
        digests[front:] = [label + salt for label in digests[front:]]
    sums = list(turn.sums)
    marks: list[Mark] = []
    if told.facts.machine in MARKED and sums:
        if front and len(sums) > 1:
            marks.append(Mark(0, turn.ttl))
        marks.append(Mark(len(sums) - 1, turn.ttl))
    if told.total > turn.cached:
        digests.append(f"{call.session}/{call.lane}/{call.id}/tail".encode())
        sums.append(told.total)
    return SimRequest(
        id=call.id,
        at=turn.span.high,
        readable_at=turn.readable,
        ended_at=turn.readable if call.ended_at is None else max(call.ended_at, turn.readable),
        model=told.facts.model,
        scope=told.scope,
        digests=digests,
        sizes=sums,
        kinds=["text"] * len(sums),
        marks=tuple(marks),
        roles=["user"] * len(sums),
        messages=range(len(sums)),
        ttl=turn.ttl,
    )


def _inherited(
    call: Call, known: Known, parent: _Turn | None, static: int
) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """Return what a call shares with its parent."""
    lane = f"{call.session}/{call.lane}"
    if parent is None:
        if not static:
            return (), ()
        return (f"{lane}/{call.id}/static".encode(),), (static,)
    changed = known.changed or ("tools" if static != parent.static else None)
    if changed is None:
        return parent.labels, parent.sums
    if changed == "messages":
        front = 1 if parent.static else 0
        return parent.labels[:front], parent.sums[:front]
    # The whole prefix is another one; positions stay, since messages are what they were.
    shift = static - parent.static
    labels = tuple(digest(label + f"/{call.id}".encode()) for label in parent.labels)
    return labels, tuple(size + shift for size in parent.sums)


def _keep(turns: list[_Turn], turn: _Turn) -> None:
    """Remember a call of a lane; only some of the latest can be extended."""
    turns.append(turn)
    if len(turns) > _KEPT_TURNS:
        del turns[: _KEPT_TURNS // 2]


def _latest(turns: list[_Turn], at: float) -> _Turn | None:
    """Find the last call of the lane that had begun to answer by then."""
    for turn in reversed(turns):
        if turn.readable <= at:
            return turn
    return turns[-1] if turns else None


def _tail(usage: Usage, facts: Rules) -> int:
    """Tokens behind the last marker."""
    if facts.machine not in MARKED or not (usage.cache_read or usage.cache_write):
        return 0
    return usage.uncached_input or 0


def ttl_of(usage: Usage) -> str | None:
    """Lifetime of what was written last."""
    for ttl, tokens in (
        ("5m", usage.write_5m),
        ("1h", usage.write_1h),
        ("30m", usage.write_30m),
        ("12h", usage.write_12h),
        (usage.write_other_ttl, usage.write_other),
    ):
        if tokens:
            return ttl
    return None
