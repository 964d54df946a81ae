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
from cacheaudit.simulate.build import Built, Refusal, rules_of, scope_of, unusable
from cacheaudit.simulate.request import Mark, SimRequest

_MOMENT: Final = 1e-3
_MARKED: Final = frozenset({"claude", "qwen", "minimax"})
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

    call: str
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
        self._seen: dict[str, dict[tuple[str, str], float]] = {}

    def build(self, call: Call) -> Built | Refusal:
        """Build one request; its call must not start before those built already."""
        reason = unusable(call)
        if reason is not None:
            return reason
        usage, span, facts = call.usage, call.start_bounds, rules_of(call) or _assumed(call)
        if usage is None or usage.prompt_size is None or usage.cache_read is None:
            return Refusal(call.id, "no_usage", "the input or the cache read is not recorded")
        if facts is None or facts.machine is None:
            return Refusal(call.id, "unknown_rules", "no cache rules are known of the model")
        if span is None:
            return Refusal(call.id, "no_start_time", "the start of the request is not known")
        return self._request(call, usage, usage.prompt_size, span, facts)

    def _request(
        self, call: Call, usage: Usage, total: int, span: Span, facts: Rules
    ) -> Built | Refusal:
        known = self._known.get(call.id, _NOTHING)
        turns = self._lanes.setdefault((call.session, call.lane), [])
        parent = _parent(turns, span.high)
        cached = total - _tail(usage, facts)
        turn = self._turn(call, usage, span, facts, known, parent, cached)
        doubt = self._doubt(call, usage, span, facts, known, parent, cached)
        turns.append(turn)
        if len(turns) > 64:
            del turns[:32]
        seen = self._seen.setdefault(scope_of(call, facts), {})
        seen[call.session, call.lane] = span.high
        return Built(
            _as_request(call, turn, known, total, facts),
            facts,
            "recorded",
            0,
            doubt=doubt,
        )

    def _turn(
        self,
        call: Call,
        usage: Usage,
        span: Span,
        facts: Rules,
        known: Known,
        parent: _Turn | None,
        cached: int,
    ) -> _Turn:
        """Extend the parent's prompt by what is new."""
        static = known.static or (parent.static if parent is not None else 0)
        labels, sums = _inherited(call, known, parent, static)
        held = sums[-1] if sums else 0
        if parent is not None and cached < held:  # shrank: other messages
            labels, sums = labels[: bool(static)], sums[: bool(static)]
            held = sums[-1] if sums else 0
        if not sums or cached > held or known.positions:
            for number in range(known.positions or 1):
                labels += (f"{call.session}/{call.lane}/{call.id}/{number}".encode(),)
                sums += (max(cached, held),)
        begins = call.first_token_at if call.first_token_at is not None else call.ended_at
        return _Turn(
            call=call.id,
            model=facts.model,
            span=span,
            readable=span.high + _MOMENT if begins is None else max(begins, span.high),
            ttl=_ttl(usage) or (parent.ttl if parent is not None else None),
            static=static,
            labels=labels,
            sums=sums,
        )

    def _doubt(
        self,
        call: Call,
        usage: Usage,
        span: Span,
        facts: Rules,
        known: Known,
        parent: _Turn | None,
        cached: int,
    ) -> Refusal | None:
        """Say why the numbers do not tell what the cache held."""
        if usage.parts or usage.prompt_size != usage.total_input:
            return Refusal(call.id, "several_passes", "the usage sums up several model passes")
        if parent is None:
            if known.cold:
                return None
            return Refusal(call.id, "first_of_lane", "what was cached before is not recorded")
        if parent.model != facts.model:
            return Refusal(call.id, "model_changed", f"{parent.model} before, {facts.model} now")
        broken = [b.kind for b in call.boundaries if b.kind in _BREAKS]
        if broken and known.changed is None:
            return Refusal(call.id, "prefix_unknown", f"{broken[0]} before this call")
        if cached < parent.cached and known.changed is None:
            return Refusal(
                call.id, "prompt_shrank", f"{parent.cached} tokens cached before, {cached} now"
            )
        if facts.machine in _MARKED and not usage.cache_read and not usage.cache_write:
            return Refusal(call.id, "no_cache_use", "markers or size may be missing")
        return self._lifetime_doubt(call, span, facts, parent)

    def _lifetime_doubt(
        self, call: Call, span: Span, facts: Rules, parent: _Turn
    ) -> Refusal | None:
        name = parent.ttl or facts.text("default_ttl") or ""
        seconds = facts.ttl_seconds().get(name)
        if seconds is None:
            return None
        least, most = span.low - parent.span.high, span.high - parent.span.low
        if most < seconds:
            return None
        if least < seconds:
            text = f"{least:.0f} to {most:.0f} s since the last call, lifetime {seconds:.0f} s"
            return Refusal(call.id, "lifetime_unclear", text)
        own = (call.session, call.lane)
        others = self._seen.get(scope_of(call, facts), {})
        if any(lane != own and span.high - at < 3_600 for lane, at in others.items()):
            return Refusal(call.id, "kept_by_others", "other lanes may have kept a prefix alive")
        return None


def _as_request(call: Call, turn: _Turn, known: Known, total: int, facts: Rules) -> SimRequest:
    """Write a turn as the machine wants it; what follows the last marker is one block."""
    front = 1 if turn.static else 0
    digests = list(turn.labels)
    if known.setting is not None:
        salt = f"|{known.setting}".encode()
        digests[front:] = [label + salt for label in digests[front:]]
    sums = list(turn.sums)
    marks: list[Mark] = []
    if facts.machine in _MARKED and sums:
        if front and len(sums) > 1:
            marks.append(Mark(0, turn.ttl))
        marks.append(Mark(len(sums) - 1, turn.ttl))
    if total > turn.cached:
        digests.append(f"{call.session}/{call.lane}/{call.id}/tail".encode())
        sums.append(total)
    return SimRequest(
        id=call.id,
        at=turn.span.high,
        readable_at=turn.readable,
        ended_at=turn.readable if call.ended_at is None else max(call.ended_at, turn.readable),
        model=facts.model,
        scope=scope_of(call, facts),
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


def _parent(turns: list[_Turn], at: float) -> _Turn | None:
    """Find the last call of the lane that had begun to answer by then."""
    for turn in reversed(turns):
        if turn.readable <= at:
            return turn
    return turns[-1] if turns else None


def _tail(usage: Usage, facts: Rules) -> int:
    """Tokens behind the last marker."""
    if facts.machine not in _MARKED or not (usage.cache_read or usage.cache_write):
        return 0
    return usage.uncached_input or 0


def _ttl(usage: Usage) -> str | None:
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


def _assumed(call: Call) -> Rules | None:
    """Take usage that counts writes but names neither provider nor model for Anthropic's."""
    if call.provider is not None or call.model is not None:
        return None
    return rules_of(msgspec.structs.replace(call, provider="anthropic", surface="claude_api"))
