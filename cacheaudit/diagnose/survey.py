"""Sums over healthy calls: what rules about waste, lifetimes and the record itself look at.

One more pass over a session, made only when a rule asks for it, so that rules share its cost.
"""

from __future__ import annotations

from cacheaudit.diagnose.context import Context
from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage

_SOON = 300
_HOUR = 3_600
# Sizes from which single models charge more for the whole prompt.
_TIERS = (100_000, 200_000, 272_000)
FLOOD_TOKENS = 20_000
# A pause between two stamps that cannot be: beyond it clocks or order disagree.
_SKEW = 1.0
# Purposes for which the same prompt is sent again on purpose.
_RESENT = frozenset({"keep_alive", "retry", "warm_up", "probe"})
_NAME = "survey"


class Compaction:
    """One compaction of a lane.

    Attributes:
        before: Position of the last call with the old prompt; -1 where there is none.
        request: Position of the summary request, where it is recorded.
        after: Position of the first call with the new prompt; -1 where none followed.
        later: Positions of the calls behind it, up to the next compaction.
        trigger: ``auto`` or ``manual``, as recorded.
    """

    __slots__ = ("after", "before", "later", "request", "trigger")

    def __init__(self, before: int) -> None:
        self.before = before
        self.request: int | None = None
        self.after = -1
        self.later: list[int] = []
        self.trigger: str | None = None

    def follow(self, index: int) -> None:
        """Take in a call of its lane."""
        if index == self.request:
            return
        if self.after < 0:
            self.after = index
        else:
            self.later.append(index)


class LaneSurvey:
    """Sums of one lane.

    Attributes:
        name: The lane.
        first: Position of its first call with known usage.
        last: Position of its last one.
        calls: Calls with known usage.
        total: Input tokens.
        read: Tokens read.
        written: Tokens written.
        unread: Written tokens that the next call did not read, the last call's not counted.
        last_written: Tokens written by the last call.
        unread_1h: The part of ``unread`` that was written for one hour.
        soon_1h: Tokens written for one hour and read by a call that surely began within 5 minutes.
        last_1h: Tokens that the last call wrote for one hour.
        largest: Largest prompt.
        writes: Tokens written, by lifetime, model and price tier, with a call for its rates.
        first_write: Position of the first write of a lifetime.
        last_write: Position of the last write of a lifetime.
        long_hits: Position and tokens read of calls that began more than five minutes behind the
            one before, and not more than an hour.
        floods: Position and size of what single turns added beyond the response before them.
        repeats: Position of the first and number of calls in runs of equal prompts.
        compactions: What is known of each compaction.
        waits: Seconds until the first token, with the number of calls that tell.
        generation: Seconds from the first token to the end.
        durations: Seconds from the start to the end, with the number of calls that tell.
        idle: Seconds from the end to the next start.
        skewed: Positions of calls that seem to begin before the call before them did, or to end
            before they began.
    """

    __slots__ = (
        "calls", "compactions", "durations", "first", "first_write", "floods", "generation", "idle",
        "largest", "last", "last_1h", "last_write", "last_written", "long_hits", "name",
        "read", "repeats", "skewed", "soon_1h", "timed", "total", "unread", "unread_1h",
        "waited", "waits", "writes", "written",
    )  # fmt: skip

    def __init__(self, name: str, first: int) -> None:
        self.name = name
        self.first = self.last = first
        self.calls = self.total = self.read = self.written = self.unread = self.largest = 0
        self.last_written = self.unread_1h = self.soon_1h = self.last_1h = 0
        self.writes: dict[tuple[str, str | None, int], list[int]] = {}
        self.first_write: dict[str, int] = {}
        self.last_write: dict[str, int] = {}
        self.long_hits: list[tuple[int, int]] = []
        self.floods: list[tuple[int, int]] = []
        self.repeats: list[tuple[int, int]] = []
        self.skewed: list[int] = []
        self.compactions: list[Compaction] = []
        self.waits = self.generation = self.durations = self.idle = 0.0
        self.waited = self.timed = 0

    @property
    def hit_ratio(self) -> float:
        """Share of input that was read."""
        return self.read / self.total if self.total else 0.0


class Survey:
    """Sums of a session.

    Attributes:
        lanes: By name.
        without_usage: Positions of calls without any token count.
        nameless: Positions of calls with tokens and without a model.
        flagged: Positions of calls by what is odd in their usage.
        duplicates: Positions of calls whose id an earlier call has.
        failed: Positions of calls that failed.
        retried: Positions of calls that are repetitions by their record.
    """

    def __init__(self) -> None:
        self.lanes: dict[str, LaneSurvey] = {}
        self.without_usage: list[int] = []
        self.nameless: list[int] = []
        self.flagged: dict[str, list[int]] = {}
        self.duplicates: list[int] = []
        self.failed: list[int] = []
        self.retried: list[int] = []


class _State:
    """The call before, in one lane."""

    __slots__ = (
        "began", "call", "compaction", "high", "low", "output", "read", "same", "size", "w1",
        "written",
    )  # fmt: skip

    def __init__(self) -> None:
        self.compaction: Compaction | None = None
        self.call: Call | None = None
        self.low: float | None = None
        self.high: float | None = None
        self.output = self.read = self.same = self.size = self.w1 = self.written = self.began = 0


def survey(ctx: Context) -> Survey:
    """Return the sums of a session; computed once."""
    found = ctx.memo.get(_NAME)
    if not isinstance(found, Survey):
        found = ctx.memo[_NAME] = _survey(ctx)
    return found


def _survey(ctx: Context) -> Survey:
    found = Survey()
    lanes, states = found.lanes, dict[str, _State]()
    ids: set[str] = set()
    beside = {index for index, _ in ctx.asides}
    for index, call in enumerate(ctx.session.calls):
        usage = call.usage
        ids.add(call.id)
        if len(ids) + len(found.duplicates) <= index:
            found.duplicates.append(index)
        if usage is None or usage.flags or call.attempt or call.error is not None:
            _note_odd(found, index, call)
        if call.boundaries or call.purpose == "compaction":
            _note_compaction(lanes.get(call.lane), states.get(call.lane), index, call)
        if usage is None or not usage.total_input or index in beside:
            continue
        if call.model is None:
            found.nameless.append(index)
        lane = lanes.get(call.lane)
        if lane is None:
            lane, state = lanes[call.lane], states[call.lane] = (
                LaneSurvey(call.lane, index),
                _State(),
            )
        else:
            state = states[call.lane]
        _add(lane, state, index, call, usage)
    for name, lane in lanes.items():
        state = states[name]
        lane.last_written, lane.last_1h = state.written, state.w1
        _end_repeat(lane, state)
    return found


def _note_odd(found: Survey, index: int, call: Call) -> None:
    usage = call.usage
    if call.error is not None:
        found.failed.append(index)
    if call.attempt > 0 or call.purpose == "retry":
        found.retried.append(index)
    if usage is None:
        if call.error is None:
            found.without_usage.append(index)
        return
    for flag in usage.flags:
        found.flagged.setdefault(flag, []).append(index)


def _add(lane: LaneSurvey, state: _State, index: int, call: Call, usage: Usage) -> None:
    total, read = usage.total_input or 0, usage.cache_read or 0
    w5, w1 = usage.write_5m or 0, usage.write_1h or 0
    written = w5 + w1
    if usage.write_other or usage.write_30m or usage.write_12h:
        written += (usage.write_other or 0) + (usage.write_30m or 0) + (usage.write_12h or 0)
    low = high = call.started_at
    if low is None:
        span = call.start_span
        if span is not None:
            low, high = span.low, span.high
    if state.call is not None:
        _step(lane, state, index, call, total, read, low, high)
    if w5:
        _add_write(lane, "5m", call, total, w5, index)
    if w1:
        _add_write(lane, "1h", call, total, w1, index)
    lane.last = index
    lane.calls += 1
    lane.total += total
    lane.read += read
    lane.written += written
    if total > lane.largest:
        lane.largest = total
    if call.ended_at is not None and low is not None:
        _add_times(lane, index, call, low, call.ended_at)
    state.call, state.low, state.high = call, low, high
    state.size, state.read, state.written, state.w1 = total, read, written, w1
    state.output = usage.output or 0


def _step(
    lane: LaneSurvey,
    state: _State,
    index: int,
    call: Call,
    total: int,
    read: int,
    low: float | None,
    high: float | None,
) -> None:
    written = state.written
    if written:
        reread = min(max(read - state.read, 0), written)
        lane.unread += written - reread
        if state.w1:
            # The longer lifetime comes first in the prompt.
            of_1h = min(reread, state.w1)
            lane.unread_1h += state.w1 - of_1h
            if high is not None and state.low is not None and high - state.low <= _SOON:
                lane.soon_1h += of_1h
    if low is not None and state.high is not None:
        gap = low - state.high
        if gap > _SOON and read and gap <= _HOUR:
            lane.long_hits.append((index, read))
        elif gap < -_SKEW and high is not None and high < (state.low or 0.0) - _SKEW:
            lane.skewed.append(index)
    grown = total - state.size - state.output
    if grown >= FLOOD_TOKENS and not call.boundaries:
        lane.floods.append((index, grown))
    if total == state.size and call.purpose not in _RESENT:
        state.began = state.began if state.same else lane.last
        state.same += 1
    elif state.same:
        _end_repeat(lane, state)
    if state.compaction is not None:
        state.compaction.follow(index)
    if low is not None and state.call is not None and state.call.ended_at is not None:
        lane.idle += max(low - state.call.ended_at, 0.0)


def _note_compaction(lane: LaneSurvey | None, state: _State | None, index: int, call: Call) -> None:
    """Begin a compaction at its request or at its mark, whichever the record holds first."""
    if lane is None or state is None:
        return
    made = next((b for b in call.boundaries if b.kind == "compaction"), None)
    current = state.compaction
    if call.purpose == "compaction":
        state.compaction = Compaction(lane.last)
        state.compaction.request = index
        lane.compactions.append(state.compaction)
    elif made is not None:
        if current is None or current.after >= 0:
            current = state.compaction = Compaction(lane.last)
            lane.compactions.append(current)
        current.trigger = made.trigger


def _end_repeat(lane: LaneSurvey, state: _State) -> None:
    if state.same:
        lane.repeats.append((state.began, state.same + 1))
        state.same = 0


def _add_write(lane: LaneSurvey, ttl: str, call: Call, total: int, tokens: int, index: int) -> None:
    tier = 0 if total <= _TIERS[0] else sum(total > size for size in _TIERS)
    key = (ttl, call.model, tier)
    sums = lane.writes.get(key)
    if sums is None:
        lane.writes[key] = [tokens, index]
        lane.first_write.setdefault(ttl, index)
    else:
        sums[0] += tokens
    lane.last_write[ttl] = index


def _add_times(lane: LaneSurvey, index: int, call: Call, low: float, ended: float) -> None:
    if ended < low - _SKEW:
        lane.skewed.append(index)
        return
    lane.timed += 1
    lane.durations += ended - low
    first = call.first_token_at
    if first is not None and low <= first <= ended:
        lane.waited += 1
        lane.waits += first - low
        lane.generation += ended - first
