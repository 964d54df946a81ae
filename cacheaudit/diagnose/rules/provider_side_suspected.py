"""Rule RTE103."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.times import seconds_of
from cacheaudit.diagnose.wording import (
    IMAGES,
    LOOKBACK,
    PARAMETER,
    SYSTEM,
    count,
    expiry_line,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Evidence, Rival

_RANK = 14
# Twenty positions hold more than this; with fewer new tokens a lookback miss is not the first idea.
_FEW_NEW_TOKENS = 2_560
_UNMARKED = Rival(
    "nothing-cached", "A request sent without its cache markers neither reads nor writes."
)


class ProviderSideSuspected(Rule):
    """What is recorded speaks against every cause on the caller's side.

    ## Why it costs

    A stored prefix that the provider does not find is paid for again.

    ## What it rests on

    One of four things: nothing was read *and* nothing written in a lane that is cached otherwise;
    the same small part was read several times, well inside the lifetime, with full reads in
    between; the provider names reasons for other misses of the session and is silent on this one;
    or the bodies (or the provider's own comparison) show that nothing changed. None of them proves
    anything about the provider: the verdict is always `unknown`.

    ## When to ignore

    Nothing on the caller's side is known to help. Look at the rivals first.
    """

    id = "RTE103"
    name = "provider-side-suspected"
    title = "No cause on the caller's side fits: the provider's side is suspected"
    needs = ("usage", "start_times")
    no_edit = "Nothing that the caller sends is known to bring the tokens back."

    @classmethod
    @override
    def bad(cls) -> Session:
        """Read a small part twice, with full reads after much longer pauses in between."""
        return (
            Script(ttl="1h")
            .call(0, 0, 90_000)
            .call(40, 29_542, 61_000)
            .call(1_600, 90_542, 800)
            .call(1_660, 29_542, 62_500)
            .call(3_580, 92_042, 900)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Read in full every time."""
        return (
            Script(ttl="1h")
            .call(0, 0, 90_000)
            .call(40, 90_000, 542)
            .call(1_600, 90_542, 800)
            .call(1_660, 91_342, 700)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        healing = _self_healing(ctx)
        for event in ctx.events:
            if event.timing.state == "over" and not event.timing.contradicted:
                continue
            if event.switched is not None or event.boundaries or event.timing.overlaps:
                continue
            if event.change is not None:
                continue
            if event.explicit and event.read == 0 and event.written == 0:
                yield _draft(event, _NOTHING, "usage", (_UNMARKED,))
            elif (event.has_bodies or event.reason == "none") and event.timing.state == "under":
                evidence: Evidence = "body_diff" if event.has_bodies else "reported"
                yield _draft(event, _SAME, evidence, (LOOKBACK,))
            elif ctx.is_told and _is_silent(event):
                yield _draft(event, _UNNAMED, "reported", (LOOKBACK, PARAMETER, IMAGES))
            elif event.index in healing:
                line = _healing_line(event, healing[event.index])
                yield _draft(event, line, "usage", (PARAMETER, IMAGES, SYSTEM, LOOKBACK))


_NOTHING = "Nothing was read and nothing was written, although the lane is cached otherwise."
_SAME = "The prompt begins with the whole previous one: no change on the caller's side is recorded."
_UNNAMED = (
    "The provider names a reason for other misses of this session and none for this one, and too "
    "little was added to hide the older entry."
)


def _is_silent(event: Event) -> bool:
    return (
        event.is_floor
        and event.reason is None
        and event.timing.state == "under"
        and 0 <= event.growth < _FEW_NEW_TOKENS
        and not event.missing
    )


def _self_healing(ctx: Context) -> dict[int, int]:
    """Positions of misses that healed by themselves more than once, with how often."""
    runs: dict[tuple[str, int], list[list[Event]]] = {}
    for run in ctx.runs:
        if run.healed and run.read > 0 and all(_is_plain(event) for event in run.events):
            runs.setdefault((run.events[0].call.lane, run.read), []).append(run.events)
    return {
        event.index: len(group)
        for group in runs.values()
        if len(group) > 1
        for events in group
        for event in events
    }


def _is_plain(event: Event) -> bool:
    return (
        event.is_floor
        and 0 <= event.growth < _FEW_NEW_TOKENS
        and event.total >= event.previous_total
        and event.reason is None
        and not event.has_bodies
        and event.timing.state in ("under", "open")
    )


def _healing_line(event: Event, times: int) -> str:
    line = (
        f"Reads stopped at {count(event.read)} tokens {times} times and were complete again right "
        "afterwards: an edit of the prompt does not heal like that."
    )
    longest = event.lane.longest_hit
    if event.timing.high is not None and longest > event.timing.high:
        line += (
            f" Everything was read after {seconds_of(longest)}, but not here after "
            f"{seconds_of(event.timing.high)}: expiry is excluded."
        )
    return line


def _draft(event: Event, line: str, evidence: Evidence, rivals: tuple[Rival, ...]) -> Draft:
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="Nothing on the caller's side is recorded that explains it.",
        verdict="unknown",
        evidence=evidence,
        established=(shortfall(event), line, expiry_line(event), *reason_lines(event)),
        to_check=(
            "The provider's status at that time, and the request ids.",
            "Send the request with the provider's own miss diagnostics switched on.",
        ),
        rivals=rivals,
    )
