"""Sums over healthy calls: what rules about waste, lifetimes and the record itself look at.

One more pass over a session, made only when a rule asks for it, so that rules share its cost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.money import DOCUMENTED
from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage

_SOON = 300
_HOUR = 3_600
# Sizes from which single models charge more for the whole prompt.
_TIERS = (100_000, 200_000, 272_000)
FLOOD_TOKENS = 20_000
# A pause between two stamps that cannot be: beyond it clocks or order disagree.
_SKEWED = -1.0
# Purposes for which the same prompt is sent again on purpose.
_RESENT = frozenset({"keep_alive", "retry", "warm_up", "probe"})
# What else marks a call: a summary request, or one that only keeps a prefix alive.
_MARKED = frozenset({"compaction", "keep_alive"})
_NAME = "survey"
# Of the call before the first one: larger than any prompt.
_NO_SIZE = 1 << 62
_Member = tuple[int, Call, Usage]


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
        began: Position of the first call of the present run of equal prompts.
        repeats: Position of the first and number of calls in runs of equal prompts.
        compactions: What is known of each compaction.
        busy: Seconds from starts to ends, of ``timed`` calls.
        timed: Calls of which both are known.
        skewed: Positions of calls that seem to begin before the call before them did, or to end
            before they began.
    """

    __slots__ = (
        "began", "busy", "calls", "compactions", "first", "first_write", "floods", "largest",
        "last", "last_1h", "last_write", "last_written", "long_hits", "name", "read",
        "repeats", "skewed", "soon_1h", "timed", "total", "unread", "unread_1h", "writes",
        "written",
    )  # fmt: skip

    def __init__(self, name: str, first: int) -> None:
        self.name = name
        self.first = self.last = first
        self.calls = self.total = self.read = self.written = self.unread = self.largest = 0
        self.last_written = self.unread_1h = self.soon_1h = self.last_1h = 0
        self.writes: dict[tuple[str, str | None, int], tuple[int, int]] = {}
        self.first_write: dict[str, int] = {}
        self.last_write: dict[str, int] = {}
        self.long_hits: list[tuple[int, int]] = []
        self.floods: list[tuple[int, int]] = []
        self.repeats: list[tuple[int, int]] = []
        self.skewed: list[int] = []
        self.compactions: list[Compaction] = []
        self.busy = 0.0
        self.timed = 0
        self.began = first

    @property
    def write_share(self) -> int:
        """Percent that writes are of writes and reads, weighted with the documented multiples."""
        hour = sum(sums[0] for (ttl, _, _), sums in self.writes.items() if ttl == "1h")
        written = hour * DOCUMENTED["1h"] + (self.written - hour) * DOCUMENTED["5m"]
        whole = written + self.read * DOCUMENTED["read"]
        return int(written * 100 / whole) if whole else 0


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
        has_refreshes: Some request was sent to keep a prefix alive.
    """

    def __init__(self) -> None:
        self.has_refreshes = False
        self.lanes: dict[str, LaneSurvey] = {}
        self.without_usage: list[int] = []
        self.nameless: list[int] = []
        self.flagged: dict[str, list[int]] = {}
        self.duplicates: list[int] = []
        self.failed: list[int] = []
        self.retried: list[int] = []


def survey(ctx: Context) -> Survey:
    """Return the sums of a session; computed once."""
    found = ctx.memo.get(_NAME)
    if not isinstance(found, Survey):
        found = ctx.memo[_NAME] = _survey(ctx)
    return found


def lifetimes(ctx: Context) -> tuple[int, int]:
    """Return the tokens written for five minutes and for one hour, in all lanes."""
    sums = {"5m": 0, "1h": 0}
    for lane in survey(ctx).lanes.values():
        for (ttl, _, _), (tokens, _) in lane.writes.items():
            sums[ttl] += tokens
    return sums["5m"], sums["1h"]


def _survey(ctx: Context) -> Survey:
    found = Survey()
    calls = ctx.session.calls
    lanes: dict[str, list[_Member]] = {}
    marks: dict[str, list[int]] = {}
    beside = {index for index, _ in ctx.asides}
    for index, call in enumerate(calls):
        usage = call.usage
        if usage is None or usage.flags or call.attempt or call.error is not None:
            _note_odd(found, index, call)
        if call.boundaries or call.purpose in _MARKED:
            marks.setdefault(call.lane, []).append(index)
            found.has_refreshes = found.has_refreshes or call.purpose == "keep_alive"
        if usage is None or not usage.total_input or index in beside:
            continue
        if call.model is None:
            found.nameless.append(index)
        members = lanes.get(call.lane)
        if members is None:
            lanes[call.lane] = [(index, call, usage)]
        else:
            members.append((index, call, usage))
    if len({call.id for call in calls}) < len(calls):
        found.duplicates = _duplicates(calls)
    for name, members in lanes.items():
        lane = found.lanes[name] = LaneSurvey(name, members[0][0])
        _add_up(lane, members)
        if name in marks:
            _find_compactions(lane, calls, [member[0] for member in members], marks[name])
    return found


def _duplicates(calls: Sequence[Call]) -> list[int]:
    seen: set[str] = set()
    found = []
    for index, call in enumerate(calls):
        if call.id in seen:
            found.append(index)
        seen.add(call.id)
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


class _Writes:
    """Tokens written by one model, by lifetime and price tier."""

    __slots__ = (
        "first_five", "first_hour", "five", "hour", "last_five", "last_hour", "model",
    )  # fmt: skip

    def __init__(self, model: str | None) -> None:
        self.first_five = self.first_hour = -1
        self.model = model
        self.five = [0] * (len(_TIERS) + 1)
        self.hour = [0] * (len(_TIERS) + 1)
        self.last_five = [-1] * (len(_TIERS) + 1)
        self.last_hour = [-1] * (len(_TIERS) + 1)

    def add(self, total: int, five: int, hour: int, index: int) -> None:
        """Add one call."""
        tier = bisect_left(_TIERS, total)
        if five:
            self.five[tier] += five
            self.last_five[tier] = index
            if self.first_five < 0:
                self.first_five = index
        if hour:
            self.hour[tier] += hour
            self.last_hour[tier] = index
            if self.first_hour < 0:
                self.first_hour = index

    def hand_over(self, lane: LaneSurvey) -> None:
        """Add the sums to those of the lane."""
        for ttl, sums, last, first in (
            ("5m", self.five, self.last_five, self.first_five),
            ("1h", self.hour, self.last_hour, self.first_hour),
        ):
            if first < 0:
                continue
            lane.first_write.setdefault(ttl, first)
            lane.last_write[ttl] = max(last)
            for tier, tokens in enumerate(sums):
                if tokens:
                    key = (ttl, self.model, tier)
                    before = lane.writes.get(key, (0, 0))[0]
                    lane.writes[key] = (before + tokens, last[tier])


def _add_up(lane: LaneSurvey, members: list[_Member]) -> None:
    """Add up a lane. One loop over local names: this is what a healthy call costs."""
    size, same, prior, wrote, hour_before, output = _NO_SIZE, 0, 0, 0, 0, 0
    total_sum = read_sum = write_sum = unread = timed = largest = 0
    busy = 0.0
    low_before: float | None = None
    high_before: float | None = None
    writes = _Writes(members[0][1].model)
    for index, call, usage in members:
        total, read = usage.total_input or 0, usage.cache_read or 0
        five, hour = usage.write_5m or 0, usage.write_1h or 0
        low = high = call.started_at
        if low is None and (span := call.start_span) is not None:
            low, high = span.low, span.high
        if wrote:
            again = read - prior
            # Comparisons, here and below: a call of `min` costs as much as many of them.
            again = 0 if again < 0 else wrote if wrote < again else again  # noqa: FURB136
            unread += wrote - again
            if hour_before:
                _add_hour(lane, again, hour_before, low_before, high)
        if low is not None and high_before is not None:
            gap = low - high_before
            if gap > _SOON or gap < _SKEWED:
                _note_gap(lane, index, read, gap, (low_before, high))
        grown = total - size - output
        if grown >= FLOOD_TOKENS or total == size or same:
            same = _note_sizes(lane, (index, call), grown, total == size, same)
        if five or hour:
            if call.model is not writes.model and call.model != writes.model:
                writes.hand_over(lane)
                writes = _Writes(call.model)
            writes.add(total, five, hour, index)
        is_rare = usage.write_other or usage.write_30m or usage.write_12h
        wrote = five + hour + (_rare_writes(usage) if is_rare else 0)
        if low is not None and (end := call.ended_at) is not None:
            took = end - low
            busy += took
            timed += 1
            if took < _SKEWED:
                lane.skewed.append(index)
        largest = total if total > largest else largest  # noqa: FURB136
        total_sum += total
        read_sum += read
        write_sum += wrote
        size, prior, hour_before, output = total, read, hour, usage.output or 0
        low_before, high_before = low, high
        lane.last = index
    writes.hand_over(lane)
    _end_repeat(lane, same)
    lane.calls, lane.total, lane.read, lane.written = len(members), total_sum, read_sum, write_sum
    lane.unread, lane.last_written, lane.last_1h = unread, wrote, hour_before
    lane.largest, lane.busy, lane.timed = largest, busy, timed


def _rare_writes(usage: Usage) -> int:
    return (usage.write_other or 0) + (usage.write_30m or 0) + (usage.write_12h or 0)


def _add_hour(
    lane: LaneSurvey, reread: int, written: int, low: float | None, high: float | None
) -> None:
    """Add what was read again of the part with the longer lifetime, which comes first."""
    of_hour = written if written < reread else reread  # noqa: FURB136
    lane.unread_1h += written - of_hour
    if low is not None and high is not None and high - low <= _SOON:
        lane.soon_1h += of_hour


def _note_gap(
    lane: LaneSurvey, index: int, read: int, gap: float, widest: tuple[float | None, float | None]
) -> None:
    low, high = widest
    if gap > _SOON:
        if read and gap <= _HOUR:
            lane.long_hits.append((index, read))
    elif low is not None and high is not None and high < low + _SKEWED:
        lane.skewed.append(index)


def _note_sizes(
    lane: LaneSurvey, where: tuple[int, Call], grown: int, is_same: bool, same: int
) -> int:
    """Keep large additions and runs of equal prompts; return the length of the present run."""
    index, call = where
    if grown >= FLOOD_TOKENS and not call.boundaries:
        lane.floods.append((index, grown))
    if is_same and call.purpose not in _RESENT:
        if not same:
            lane.began = lane.last
        return same + 1
    _end_repeat(lane, same)
    return 0


def _end_repeat(lane: LaneSurvey, same: int) -> None:
    if same:
        lane.repeats.append((lane.began, same + 1))


def _is_open(begun: tuple[int, Compaction], members: list[int], place: int) -> bool:
    """Whether no call but its own request has followed a compaction that began."""
    first, compaction = begun
    has_request = members[first : first + 1] == [compaction.request]
    return place <= first + has_request


def _find_compactions(
    lane: LaneSurvey, calls: Sequence[Call], members: list[int], marks: list[int]
) -> None:
    """Follow the compactions of a lane, each from its request or mark to the next one.

    Args:
        lane: The lane.
        calls: All calls of the session.
        members: Positions of its calls with known usage.
        marks: Positions of its calls that are a summary request or have a boundary before them.
    """
    current: Compaction | None = None
    begun: list[tuple[int, Compaction]] = []
    for index in marks:
        call = calls[index]
        made = next((b for b in call.boundaries if b.kind == "compaction"), None)
        if call.purpose != "compaction" and made is None:
            continue
        place = bisect_left(members, index)
        if (
            current is None
            or call.purpose == "compaction"
            or not _is_open(begun[-1], members, place)
        ):
            current = Compaction(members[place - 1] if place else -1)
            begun.append((place, current))
            lane.compactions.append(current)
        if call.purpose == "compaction":
            current.request = index
        elif made is not None:
            current.trigger = made.trigger
    for number, (place, compaction) in enumerate(begun):
        end = begun[number + 1][0] if number + 1 < len(begun) else len(members)
        own = [member for member in members[place:end] if member != compaction.request]
        if own:
            compaction.after, compaction.later = own[0], own[1:]
