"""What rules look at: one pass over a session that is cheap for healthy calls.

A call extends the prompt of the call before it in its lane; warm-ups, probes and refreshes between
the two touch the cache and are not what it extends. What that one had in the cache
(read + written where writes are recorded, else its whole prompt) is what a hit would read, cut to
the present prompt. Where less was read and the shortfall is large enough to matter, the call
becomes an :class:`Event`; a healthy call leaves a few integers behind and nothing else.

Tokens that a call sent uncached behind its last marker were never stored, so that not reading them
later is no loss: recorded sessions are full of such tails of one to five thousand tokens.
"""

from __future__ import annotations

from typing import Any

from cacheaudit.diagnose.events import Event, Lane, Opening, Run
from cacheaudit.diagnose.times import Timing, default_ttl
from cacheaudit.model.call import Boundary, Call, Session
from cacheaudit.model.change import Change, common_prefix, first_change, is_extension
from cacheaudit.model.usage import Usage

# A shortfall below both is no event, unless requests show a change. 1,024 tokens: providers that
# report in steps of 128 and tokenizers that merge at a seam stay far below it, and no model but a
# few of the newest caches less. 5 %: the step with which some automatic caches store grows with the
# prompt.
LOSS_TOKENS = 1_024
LOSS_SHARE = 20
# What tokenizers may merge at a seam, and the step of those who report in steps.
SEAM_TOKENS = 128
# Automatic caches store at intervals of up to 2,048 tokens.
AUTOMATIC_LOSS_TOKENS = 2_048 + 128
# Requests that may go out beside a conversation with a prompt of their own.
_BESIDE = frozenset({"keep_alive", "warm_up", "probe", "compaction"})
# Of these the ones that a conversation does not go on from.
_REPLAYS = frozenset({"keep_alive", "warm_up", "probe"})
# A lane in which more than every third prompt is smaller than the one before it is no conversation.
_MIN_CALLS_TO_JUDGE = 6


class Context:
    """A session, ready for rules.

    Attributes:
        session: The session.
        lanes: Lanes by name.
        events: Calls that lost tokens, in order of ``session.calls``.
        openings: First calls of lanes.
        changes: First change against the previous prompt of the lane, by position of the call.
        earlier: Position of the call that such a change is against.
        unmoved: Positions of calls whose prompt extends the previous one unchanged.
        reasoned: Positions of calls for which the provider named a change.
        is_told: The provider gave a reason for some miss of this session, so that its silence on
            another one says something.
        runs: Successive calls that lost tokens and read the same size.
        unrelated: Lanes whose prompts do not grow out of each other, so that nothing can be said of
            what they could have read.
        asides: Positions of requests beside the conversation whose prompt is another one, each
            with that of the call before it in the lane.
        unanswered: Positions of calls with a recorded body and no usage, such as refused ones.
        left: Positions of events of which other rules may leave something unexplained; ``None``
            where they have not been asked.
        memo: What several rules derive from the session, by the name of who derives it.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lanes: dict[str, Lane] = {}
        self.events: list[Event] = []
        self.openings: list[Opening] = []
        self.changes: dict[int, Change] = {}
        self.earlier: dict[int, int] = {}
        self.unmoved: set[int] = set()
        self.runs: list[Run] = []
        self.unrelated: list[Lane] = []
        self.reasoned: list[int] = []
        self.is_told = False
        self.unanswered: list[int] = []
        self.asides: list[tuple[int, int]] = []
        self.memo: dict[str, Any] = {}
        self.left: set[int] | None = None
        # Replays: what they lost is theirs, the conversation goes on without them.
        self._detours: set[int] = set()
        # Boundaries before calls without usage; they hold for the next call that has some.
        self._held: dict[str, tuple[Boundary, ...]] = {}
        self._scan()
        self._settle_by_openings()
        self._prompts()
        self._set_unrelated_apart()

    @property
    def lost(self) -> int:
        """Lost tokens of all calls."""
        return sum(event.lost for event in self.events)

    @property
    def shows(self) -> frozenset[str]:
        """What is recorded of any call that lost tokens: ``bodies``, the provider's ``reasons``."""
        found = []
        if any(event.has_bodies for event in self.events):
            found.append("bodies")
        if any(event.call.diagnostics is not None for event in self.events):
            found.append("reasons")
        return frozenset(found)

    def _scan(self) -> None:
        lanes = self.lanes
        for index, call in enumerate(self.session.calls):
            usage = call.usage
            if usage is None or usage.cache_read is None or not usage.total_input:
                self._hold(call)
                continue
            read, total, written, endpoint, is_recorded = _sizes(usage)
            lane = lanes.get(call.lane)
            if lane is None:
                lane = lanes[call.lane] = Lane(call.lane)
            elif call.purpose in _BESIDE and self._is_aside(lane, index, call, total):
                if total * 2 >= lane.total:
                    self._detour(lane, index, call, read, total, written, endpoint)
                continue
            if call.diagnostics is not None:
                self._heed(index, call.diagnostics.type)
            low, high = _bounds(call)
            if lane.last is None:
                lane.first_index, lane.smallest, lane.model = index, total, call.model
                lane.knows_writes = is_recorded
                self.openings.append(Opening(index, call, total, read, written, endpoint))
            else:
                self._step(lane, index, call, read, total, written, endpoint, low)
                if call.purpose in _REPLAYS and lane.last.purpose not in _REPLAYS:
                    self._stay(lane, index, call, low, high)
                    continue
            if written:
                _note_lifetime(lane, call, usage)
            if endpoint:
                lane.cached = lane.cached or read > 0 or written > 0
                lane.endpoint = endpoint
                lane.sizes[endpoint] = index
            if total < lane.smallest:
                lane.smallest = total
            lane.calls += 1
            lane.last, lane.last_index, lane.touched = call, index, call
            lane.total, lane.read, lane.written = total, read, written
            lane.low, lane.high = low, high

    def _hold(self, call: Call) -> None:
        """Keep the boundaries before a call that tells nothing itself."""
        if call.boundaries:
            self._held[call.lane] = (*self._held.get(call.lane, ()), *call.boundaries)

    def _heed(self, index: int, word: str) -> None:
        """Keep what the provider says of misses."""
        if word.endswith("_changed"):
            self.reasoned.append(index)
        self.is_told = self.is_told or word != "pending"

    def _is_aside(self, lane: Lane, index: int, call: Call, total: int) -> bool:
        """Whether a request is no turn of its lane; a small one is kept out of every comparison."""
        if total * 2 >= lane.total:
            return call.purpose in _REPLAYS and _is_other(lane, call, total)
        self._set_aside(lane, index, call)
        return True

    def _set_aside(self, lane: Lane, index: int, call: Call) -> None:
        self.asides.append((index, lane.last_index))
        made = (Boundary("compaction"),) if call.purpose == "compaction" else ()
        self._held[lane.name] = (*self._held.get(lane.name, ()), *call.boundaries, *made)

    def _detour(
        self,
        lane: Lane,
        index: int,
        call: Call,
        read: int,
        total: int,
        written: int,
        endpoint: int,
    ) -> None:
        """Note what a replay lost, and leave the lane as it was: it refreshed nothing of it."""
        self._detours.add(index)
        expected = min(total, lane.endpoint)
        if self._is_loss(lane, expected - read, expected, read, {}):
            event = self._event(lane, index, call, read, total, written, endpoint, expected)
            event.switched, event.boundaries, event.same_model_read = None, call.boundaries, False
            event.run = Run(read)
            event.run.events.append(event)
            self.events.append(event)

    def _stay(
        self, lane: Lane, index: int, call: Call, low: float | None, high: float | None
    ) -> None:
        """Go on from the conversation behind a replay of it, which only kept its prefix alive."""
        self._detours.add(index)
        lane.touched, lane.low, lane.high = call, low, high

    def _step(
        self,
        lane: Lane,
        index: int,
        call: Call,
        read: int,
        total: int,
        written: int,
        endpoint: int,
        low: float | None,
    ) -> None:
        """Compare a call with the one before it in its lane."""
        boundaries = call.boundaries
        if self._held and lane.name in self._held:
            boundaries = (*self._held.pop(lane.name), *boundaries)
        has_switched = call.model != lane.model and not _same_model(call.model, lane.model)
        if has_switched and lane.model is not None:
            lane.by_model[lane.model] = (lane.endpoint, lane.sizes, lane.smallest)
        if boundaries and any(b.kind in ("clear", "branch") for b in boundaries):
            self._restart(lane, total)
        expected = lane.endpoint
        if total < expected:
            expected = total
        lost = expected - read
        own = lane.by_model.get(call.model or "") if has_switched else None
        sizes = lane.sizes if own is None else own[1]
        if lost > 0 and (
            self._is_loss(lane, lost, expected, read, sizes) or _is_changed(lane, call, lost)
        ):
            event = self._event(lane, index, call, read, total, written, endpoint, expected)
            event.switched = lane.model if has_switched else None
            event.boundaries = boundaries
            event.same_model_read = own is not None and read >= min(own[0], total) > 0
            self._settle(lane, read, expected)
            self._join_run(lane, event)
            lane.last_event = event
            self.events.append(event)
            if boundaries or total * 2 < lane.total:
                lane.smallest = total
        else:
            if low is not None and lane.high is not None and low - lane.high > lane.longest_hit:
                lane.longest_hit = low - lane.high
            if lane.last_event is not None:
                self._settle(lane, read, expected)
                if lane.run is not None:
                    lane.run.healed = True
                    lane.run = None
                lane.last_event = None
        if total < lane.total and not boundaries:
            lane.shrinks += 1
        if has_switched:
            _, lane.sizes, lane.smallest = lane.by_model.get(call.model or "", (0, {}, total))
        lane.model = call.model if call.model is not None else lane.model

    @staticmethod
    def _restart(lane: Lane, total: int) -> None:
        """A new or other branch of conversation: nothing of the last prompt need be in it."""
        lane.endpoint = 0
        lane.smallest = total

    @staticmethod
    def _is_loss(lane: Lane, lost: int, expected: int, read: int, sizes: dict[int, int]) -> bool:
        if not lane.explicit:
            return lost > AUTOMATIC_LOSS_TOKENS and lost * LOSS_SHARE > expected
        # An exact older size is no rounding, however small the difference is.
        return (lost > LOSS_TOKENS and lost * LOSS_SHARE > expected) or read in sizes

    @staticmethod
    def _settle(lane: Lane, read: int, expected: int) -> None:
        """Tell the last event what the call behind it read."""
        event = lane.last_event
        if event is None:
            return
        older = lane.sizes.get(read)
        is_older = older is not None and older < event.index
        if read >= expected and not (is_older and read > event.endpoint):
            event.next_read = "full"
        else:
            event.next_read = "older" if is_older else "less"

    def _join_run(self, lane: Lane, event: Event) -> None:
        run = lane.run
        if run is None or lane.last_event is None or run.read != event.read:
            if run is not None:
                run.healed = False
            run = lane.run = Run(event.read)
            self.runs.append(run)
        run.events.append(event)
        event.run = run

    def _event(
        self,
        lane: Lane,
        index: int,
        call: Call,
        read: int,
        total: int,
        written: int,
        endpoint: int,
        expected: int,
    ) -> Event:
        assert lane.last is not None  # noqa: S101 - a lane's first call never gets here
        event = Event()
        event.index, event.call, event.lane = index, call, lane
        event.previous, event.previous_index = lane.last, lane.last_index
        event.expected, event.read, event.lost = expected, read, expected - read
        event.total, event.written, event.endpoint = total, written, endpoint
        event.previous_total = lane.total
        event.previous_read, event.previous_written = lane.read, lane.written
        event.growth = total - lane.endpoint
        event.explicit = lane.explicit
        event.timing = Timing.between(
            lane.touched or lane.last, call, lane.ttl, lane.ttl_assumed, lane.longest_hit
        )
        older = lane.sizes.get(read) if read and lane.explicit else None
        event.older = older if older is not None and older != lane.last_index else None
        event.skipped_lost = event.older is not None and self._all_lost(lane, event.older)
        event.smallest = lane.smallest
        event.is_floor = 0 < read < lane.smallest
        event.next_read = None
        event.output = 0 if lane.last.usage is None else lane.last.usage.output or 0
        event.has_bodies = False
        event.change = None
        usage = call.usage
        event.compaction_part = usage is not None and any(
            part.kind == "compaction" for part in usage.parts
        )
        return event

    def _all_lost(self, lane: Lane, older: int) -> bool:
        """Whether every call of the lane behind ``older`` lost tokens."""
        calls = self.session.calls
        lost = {event.index for event in reversed(self.events[-64:])}
        for index in range(lane.last_index, older, -1):
            call = calls[index]
            if call.lane == lane.name and call.usage is not None and index not in lost:
                return False
        return True

    def _prompts(self) -> None:
        """Compare recorded bodies, each with the one before it in its lane."""
        calls = self.session.calls
        last: dict[str, int] = {}
        events = {event.index: event for event in self.events}
        beside = self._detours.union(index for index, _ in self.asides)
        for index, call in enumerate(calls):
            if call.prompt is None:
                continue
            if call.usage is None:
                self.unanswered.append(index)
            before = last.get(call.lane)
            if index not in beside:
                last[call.lane] = index
            if before is None:
                continue
            old = calls[before].prompt
            if old is None or old.level_order != call.prompt.level_order:
                continue
            change = None if is_extension(old, call.prompt) else first_change(old, call.prompt)
            if change is not None:
                self.changes[index] = change
                self.earlier[index] = before
            else:
                self.unmoved.add(index)
            event = events.get(index)
            if event is not None and event.previous_index == before:
                event.has_bodies, event.change = True, change

    def _settle_by_openings(self) -> None:
        """A lane that begins with exactly what a last call left in the cache has read it."""
        waiting = {event.endpoint: event for event in self.events if event.next_read is None}
        for opening in self.openings:
            event = waiting.get(opening.read)
            if event is not None and opening.read and opening.index > event.index:
                event.next_read = "full"

    def _set_unrelated_apart(self) -> None:
        """Drop events that rest on the belief that a lane is one growing conversation."""
        self.unrelated = [
            lane
            for lane in self.lanes.values()
            if lane.calls >= _MIN_CALLS_TO_JUDGE and lane.shrinks * 3 > lane.calls
        ]
        if self.unrelated:
            names = {lane.name for lane in self.unrelated}
            self.events = [e for e in self.events if e.has_bodies or e.call.lane not in names]
            self.runs = [r for r in self.runs if r.events[0].call.lane not in names]

    def shared_tokens(self, first: int, second: int) -> int | None:
        """Tokens that the prompts of two calls share from the front, where sizes are known."""
        a, b = self.session.calls[first].prompt, self.session.calls[second].prompt
        if a is None or b is None or a.level_order != b.level_order:
            return None
        total = 0
        for block in a.blocks[: common_prefix(a, b)]:
            if block.tokens is None:
                return None
            total += block.tokens
        return total


def _bounds(call: Call) -> tuple[float | None, float | None]:
    """Return the interval of a call's start, without making an object of it."""
    if call.started_at is None and call.start_span is not None:
        return call.start_span.low, call.start_span.high
    return call.started_at, call.started_at


def _is_changed(lane: Lane, call: Call, lost: int) -> bool:
    """Whether recorded requests show a change, which then explains a small loss too."""
    old, new = lane.last.prompt if lane.last is not None else None, call.prompt
    if lost <= SEAM_TOKENS or not lane.explicit or old is None or new is None:
        return False
    return old.level_order == new.level_order and not is_extension(old, new)


def _is_other(lane: Lane, call: Call, total: int) -> bool:
    """Whether a replay does not carry the prompt of the call before it."""
    last = lane.last.prompt if lane.last is not None else None
    if last is None or call.prompt is None or last.level_order != call.prompt.level_order:
        return total + LOSS_TOKENS < lane.total
    return not is_extension(last, call.prompt)


def _sizes(usage: Usage) -> tuple[int, int, int, int, bool]:
    """Return read, prompt, written, what the cache then held, and whether writes are recorded."""
    read, total = usage.cache_read or 0, usage.total_input or 0
    w5, w1, other = usage.write_5m, usage.write_1h, usage.write_other
    written = (w5 or 0) + (w1 or 0) + (other or 0)
    if usage.write_30m or usage.write_12h:
        written += (usage.write_30m or 0) + (usage.write_12h or 0)
    if written == 0 and w5 is None and w1 is None and other is None and usage.cache_write is None:
        # An automatic cache that does not tell what it stores: all of it, as far as we know.
        return read, total, 0, usage.context_input or total, False
    if usage.parts or usage.context_input is not None:
        read, total, stored = _last_pass(usage, read, total, written)
        return read, total, written, stored, True
    return read, total, written, read + written, True


def _note_lifetime(lane: Lane, call: Call, usage: Usage) -> None:
    lane.explicit = True
    if usage.write_1h:
        lane.ttl, lane.ttl_assumed = 3600, False
    elif usage.write_5m:
        lane.ttl, lane.ttl_assumed = 300, False
    else:
        lane.ttl, lane.ttl_assumed = default_ttl(call, usage)


def _last_pass(usage: Usage, read: int, total: int, written: int) -> tuple[int, int, int]:
    """Read of the first model pass, prompt and cached size of the last.

    Where a call made several passes its sums count the same prefix more than once.
    """
    passes = [part for part in usage.parts if part.kind == "message"]
    size = usage.context_input or total
    if not passes:
        return read, size, min(read + written, size)
    first, last = passes[0], passes[-1]
    stored = (last.cache_read or 0) + sum(
        getattr(last, field) or 0
        for field in ("write_5m", "write_1h", "write_30m", "write_12h", "write_other")
    )
    begun = first.cache_read if first.cache_read is not None else read
    return begun, size, min(stored, size)


def _same_model(a: str | None, b: str | None) -> bool:
    """Whether two names may stand for one model: an alias and its dated version, or unknown."""
    if a is None or b is None:
        return True
    short, long = sorted((a, b), key=len)
    rest = long[len(short) :]
    return long.startswith(short) and (
        not rest or rest == "-latest" or (rest[0] in "-@" and rest[1:].isdigit() and len(rest) > 6)
    )
