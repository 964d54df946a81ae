"""What one pass over a session leaves behind: calls that lost tokens, and the state of lanes."""

from __future__ import annotations

import msgspec

from cacheaudit.diagnose.times import Timing
from cacheaudit.model.call import Boundary, Call
from cacheaudit.model.change import Change


class Run:
    """Successive calls of a lane that all lost tokens and read the same size.

    Attributes:
        events: The calls.
        healed: The call behind them read in full again; ``None`` where none followed.
    """

    __slots__ = ("events", "healed", "read")

    def __init__(self, read: int) -> None:
        self.read = read
        self.events: list[Event] = []
        self.healed: bool | None = None


class Event:
    """A call that read less than it could have, with all that is known around it.

    Attributes:
        index: Its position in ``session.calls``.
        call: The call.
        boundaries: What the record holds between the two calls, failed calls in between included.
        previous: The call before it in the lane whose usage is known.
        previous_index: Position of that call.
        lane: What is known of its lane.
        expected: Tokens that a hit would have read.
        read: Tokens that were read.
        lost: ``expected - read``.
        total: Size of the prompt.
        written: Tokens written to the cache.
        endpoint: Tokens that the cache held of this prompt afterwards.
        previous_total: Size of the prompt before it.
        previous_read: Tokens that the previous call read.
        previous_written: Tokens that the previous call wrote.
        growth: Tokens behind what the previous call had cached.
        timing: Gap to the previous call against the lifetime in force.
        switched: The model before, where it was another one.
        same_model_read: The read is what this model's own last prompt in the lane had cached.
        older: Position of an older call whose cached prefix has exactly the size that was read.
        skipped_lost: Every call between ``older`` and this one lost tokens itself.
        is_floor: Something was read, but less than the smallest prompt of the lane, so that the
            hit ends before the conversation does.
        explicit: Writes are recorded, so the cache works with markers.
        output: Tokens of the response before.
        next_read: ``full``: the next call read what this one left in the cache; ``older``: it
            read exactly what an older call had left; ``less``; ``None``: no next call.
        run: The successive calls with the same read that it belongs to.
        has_bodies: Both prompts were recorded.
        change: First change between them; ``None`` where there is none, or no bodies.
        compaction_part: The provider compacted within this call.
    """

    __slots__ = (
        "boundaries", "call", "change", "compaction_part", "endpoint", "expected", "explicit",
        "growth", "has_bodies", "index", "is_floor", "lane", "lost", "next_read", "older",
        "output", "previous", "previous_index", "previous_read", "previous_total",
        "previous_written", "read", "run", "same_model_read", "skipped_lost", "smallest",
        "switched", "timing", "total", "written",
    )  # fmt: skip

    boundaries: tuple[Boundary, ...]
    call: Call
    previous: Call
    index: int
    previous_index: int
    lane: Lane
    expected: int
    read: int
    lost: int
    total: int
    written: int
    endpoint: int
    previous_total: int
    previous_read: int
    previous_written: int
    growth: int
    timing: Timing
    switched: str | None
    same_model_read: bool
    older: int | None
    skipped_lost: bool
    is_floor: bool
    smallest: int
    explicit: bool
    next_read: str | None
    output: int
    run: Run
    has_bodies: bool
    change: Change | None
    compaction_part: bool

    @property
    def missing(self) -> int:
        """Tokens, at least, that an appended prompt would have and this one does not.

        The response before belongs into a prompt that only appends. Where some of it is thinking
        that the provider drops, nothing need have been edited.
        """
        return max(0, self.previous_total + self.output - self.total)

    @property
    def reason(self) -> str | None:
        """The provider's own word on the miss; ``None`` where it said nothing."""
        said = self.call.diagnostics
        return None if said is None or said.type == "pending" else said.type


class Opening(msgspec.Struct, frozen=True):
    """First call of a lane: it had nothing to read from its own lane."""

    index: int
    call: Call
    total: int
    read: int
    written: int
    endpoint: int


class Lane:
    """Running state of one lane; integers only, so that healthy calls stay cheap.

    Attributes:
        name: The lane.
        calls: Calls with known usage.
        explicit: Some call wrote to the cache.
        cached: Some call read from or wrote to the cache.
        shrinks: Calls whose prompt was smaller than the one before, without a recorded reason.
        longest_hit: Longest gap, for certain, over which everything was still read.
        knows_writes: Writes are recorded, be they zero.
        last_index: Position of the last call with known usage.
        touched: Call that last used the cache of the lane: the last one, or a replay behind it.
    """

    __slots__ = (
        "by_model", "cached", "calls", "endpoint", "explicit", "first_index", "high",
        "knows_writes", "last", "last_event", "last_index", "longest_hit", "low", "model", "name",
        "read", "run",
        "shrinks", "sizes", "smallest", "total", "touched", "ttl", "ttl_assumed", "written",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.explicit = False
        self.cached = False
        self.shrinks = 0
        self.longest_hit = 0.0
        self.knows_writes = False
        self.first_index = -1
        self.last_index = -1
        self.last: Call | None = None
        self.touched: Call | None = None
        self.last_event: Event | None = None
        self.run: Run | None = None
        self.model: str | None = None
        self.total = 0
        self.read = 0
        self.written = 0
        self.endpoint = 0
        self.smallest = 0
        self.low: float | None = None
        self.high: float | None = None
        self.ttl: int | None = None
        self.ttl_assumed = False
        self.sizes: dict[int, int] = {}
        self.by_model: dict[str, tuple[int, dict[int, int], int]] = {}
