"""Rule RTE105."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import MIXED, count, expiry_line, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

_RANK = 13
_AT_LEAST = 2
_RIVALS = (
    Rival("parameter-changed", "A parameter that alternates splits the cache in the same way."),
    MIXED,
)


class AlternatingAccounts(Rule):
    """Call after call read what one several places before had left, not the last one.

    ## Why it costs

    Accounts, workspaces and regions have caches of their own. Requests that alternate between them
    write the same conversation once for each, and each reads only up to its own last state.

    ## What it rests on

    At least two calls in a row, each of which read to the token what the call the same number of
    places before it had left in the cache.

    ## When to ignore

    When the load has to be spread, and the conversations are short.
    """

    id = "RTE105"
    name = "alternating-accounts"
    title = "Reads follow older calls in turn: requests alternate between separate caches"
    fix = Fix("Send a conversation to one account from its first request to its last")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Send in turn to three accounts."""
        return (
            Script()
            .call(0, 0, 10_000)
            .call(10, 0, 12_000)
            .call(20, 0, 14_000)
            .call(30, 10_000, 6_000)
            .call(40, 12_000, 6_000)
            .call(50, 14_000, 6_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Send to one."""
        return (
            Script()
            .call(0, 0, 10_000)
            .call(10, 10_000, 2_000)
            .call(20, 12_000, 2_000)
            .call(30, 14_000, 2_000)
            .call(40, 16_000, 2_000)
            .call(50, 18_000, 2_000)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for events in _turns(ctx.events):
            for event in events:
                distance = event.index - (event.older or 0)
                yield Draft(
                    index=event.index,
                    claims=event.lost,
                    rank=_RANK,
                    why="Each call reads what the call the same number of places before it left.",
                    established=(
                        shortfall(event),
                        (
                            f"{count(event.read)} tokens are exactly what "
                            f"{ctx.session.calls[event.older or 0].id} had left, {distance} "
                            f"calls before; {len(events)} calls in a row read in this way."
                        ),
                        expiry_line(event),
                    ),
                    to_check=("Which account, workspace, region or key each request went to.",),
                    rivals=() if event.has_bodies else _RIVALS,
                )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _turns(events: list[Event]) -> Iterator[list[Event]]:
    """Yield runs of calls that each read what the call one round before them had left."""
    lanes: dict[str, list[Event]] = {}
    for event in events:
        if event.older is not None and event.switched is None and event.change is None:
            lanes.setdefault(event.lane.name, []).append(event)
    for group in lanes.values():
        run: list[Event] = []
        for event in group:
            if run and not _follows(run[-1], event):
                yield from _long_enough(run)
                run = []
            run.append(event)
        yield from _long_enough(run)


def _follows(before: Event, event: Event) -> bool:
    return (
        event.previous_index == before.index
        and (event.older or 0) - (before.older or 0) == event.index - before.index
    )


def _long_enough(run: list[Event]) -> Iterator[list[Event]]:
    if len(run) >= _AT_LEAST:
        yield run
