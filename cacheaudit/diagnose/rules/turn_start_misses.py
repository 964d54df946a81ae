"""Rule PFX122."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import SERVER, aftermath, expiry_line, reason_lines, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

_RANK = 25
_AT_LEAST = 5
_FINISHED = frozenset({"end_turn", "stop", "stop_sequence"})


class TurnStartMisses(Rule):
    """Nothing was read at the first calls of new turns, while calls within a turn read everything.

    ## Why it costs

    A long conversation is written again each time the user says something.

    ## What it rests on

    Five misses or more of everything inside the lifetime, nine tenths of them at calls that follow
    a finished answer, while such calls are less than half of the lane. So what changes is rendered
    anew when a turn begins - a date, a list of files, tools, the model's settings - and stays the
    same until the next. Which of them it is, sizes cannot tell.

    ## When to ignore

    Never: find out what the client renders anew.
    """

    id = "PFX122"
    name = "turn-start-misses"
    title = "Misses come with new turns of the user, and not within them"
    needs = ("usage", "start_times")
    fix = Fix("Render what changes with each turn into the newest user message")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Render the working folder into the system prompt at each turn."""
        return _turns(lost=True)

    @classmethod
    @override
    def good(cls) -> Session:
        """Put it into the newest message."""
        return _turns(lost=False)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        lanes: dict[str, list[Event]] = {}
        for event in ctx.events:
            if _is_candidate(event):
                lanes.setdefault(event.lane.name, []).append(event)
        for name, events in lanes.items():
            if len(events) < _AT_LEAST:
                continue
            starts = [event for event in events if event.previous.stop_reason in _FINISHED]
            turns, calls = _turn_starts(ctx, name)
            if len(starts) * 10 >= len(events) * 9 and turns * 2 < calls:
                for event in starts:
                    yield _draft(event, len(starts), turns, len(events), calls)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _is_candidate(event: Event) -> bool:
    return (
        event.read == 0
        and event.explicit
        and event.timing.state == "under"
        and event.switched is None
        and not event.has_bodies
        and not event.timing.overlaps
    )


def _turn_starts(ctx: Context, lane: str) -> tuple[int, int]:
    """Count the calls of a lane that follow a finished answer, and all that follow one at all."""
    turns = calls = 0
    before: str | None = None
    for call in ctx.session.calls:
        if call.lane != lane or call.usage is None or not call.usage.total_input:
            continue
        turns += before in _FINISHED
        calls += 1
        before = call.stop_reason
    return turns, calls - 1


def _draft(event: Event, starts: int, turns: int, misses: int, calls: int) -> Draft:
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="Misses of this lane come with new turns.",
        established=(
            shortfall(event),
            (
                f"{starts} of {turns} calls behind a finished answer read nothing inside the "
                f"lifetime, but only {misses - starts} of "
                f"the {calls - turns} calls within a turn: what changed is rendered anew when a "
                "turn begins."
            ),
            expiry_line(event),
            *aftermath(event),
            *reason_lines(event),
        ),
        to_check=(
            (
                "What the client puts into tools and system when a turn begins: date, files, "
                "mode, tools."
            ),
            "Whether the model's settings differ between the first call of a turn and the others.",
        ),
        rivals=(
            Rival("system-changed", "A system prompt that is rendered anew for each turn."),
            Rival("tools-changed", "Tools that depend on what the user said."),
            Rival("parameter-changed", "A setting that stands before tools or system."),
            SERVER,
        ),
    )


def _turns(*, lost: bool) -> Session:
    """Six turns of four calls each."""
    script, size, ends = Script(), 20_000, []
    for number in range(24):
        is_start = number % 4 == 0
        read = 0 if number == 0 or (is_start and lost) else size
        script.call(20.0 * number, read, size + 500 - read)
        size += 500
        ends.append("end_turn" if number % 4 == 3 else "tool_use")
    session = script.session()
    calls = tuple(
        msgspec.structs.replace(call, stop_reason=end)
        for call, end in zip(session.calls, ends, strict=True)
    )
    return msgspec.structs.replace(session, calls=calls)
