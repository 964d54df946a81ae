"""Rule RTE102."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import has_requests
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.times import seconds_of
from cacheaudit.diagnose.wording import SERVER, count, reason_lines, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.wait import Wait

_RANK = 11
# Reports speak of misses right behind the write and of hits from two seconds on.
_SOON = 5.0


class ReadBeforeVisible(Rule):
    """The same request was repeated so soon that the first write could not be read yet.

    ## Why it costs

    Between the write of an entry and the moment when every machine can read it some time passes.
    A repeated request within that time writes everything once more.

    ## What it rests on

    Equal sizes, equal reads and a start within a few seconds of the previous response. It is no
    fault of the prefix: nothing in it need have changed.

    ## When to ignore

    When it happens once.
    """

    id = "RTE102"
    name = "read-before-visible"
    title = "The write of the request before could not be read yet"
    needs = ("usage", "start_times")
    fix = Fix("Wait for about two seconds between a first request and its repetition")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Repeat a request at once."""
        return Script().call(0, 0, 9_000, duration=1).call(1.2, 0, 9_000, duration=1).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Wait for two seconds."""
        return Script().call(0, 0, 9_000, duration=1).call(3, 9_000, 0, duration=1).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if _is_repeat(event) and not event.timing.overlaps:
                since = event.timing.idle if event.timing.idle is not None else event.timing.high
                yield Draft(
                    index=event.index,
                    claims=event.lost,
                    rank=_RANK,
                    why="An equal request ended just before.",
                    established=(
                        shortfall(event),
                        (
                            f"It has the same {count(event.total)} tokens as {event.previous.id} "
                            f"and began {seconds_of(max(since or 0.0, 0.0))} behind it."
                        ),
                        *reason_lines(event),
                    ),
                    to_check=("Repeat it with a pause of two seconds and see whether it reads.",),
                    rivals=(SERVER,),
                )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return None if has_requests(session) else Wait(calls=finding.calls)


def _is_repeat(event: Event) -> bool:
    timing = event.timing
    if timing.high is None or event.change is not None:
        return False
    since = timing.idle if timing.idle is not None else timing.high
    return (
        event.total == event.previous_total
        and event.read == event.previous_read
        and since <= _SOON
        and event.switched is None
    )
