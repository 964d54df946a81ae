"""Rule TTL101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.expiry import expired, is_expired
from cacheaudit.diagnose.mends import refreshed
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import expiry_line
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit

_RIVAL_RANK = 90


class TtlExpired(Rule):
    """The cached prefix had not been touched for longer than it lives.

    ## Why it costs

    Five minutes (or an hour, where asked for) after the *start* of the request that last wrote or
    read it, cached content is gone, and the whole prompt is written again. Where the pause alone
    was shorter than the lifetime, see `ttl-used-up-by-long-request`.

    ## What it rests on

    Request starts and the lifetime of earlier writes. Where only an interval is known for the
    start, the whole interval has to lie beyond the lifetime; where it straddles, expiry is only a
    rival cause. Proved where the bodies are the same or the provider found no divergence. A lane
    in which everything was still read after a longer gap does not count.

    ## When to ignore

    When the pauses are rare. A one-hour lifetime makes every write dearer; whether it would have
    paid is the question of `one-hour-lifetime-would-pay`.
    """

    id = "TTL101"
    name = "ttl-expired"
    title = "The cached prefix outlived its lifetime"
    needs = ("usage", "start_times")
    fix = Fix("Refresh the prefix before it expires, or ask for a longer lifetime where that pays")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Pause for longer than five minutes."""
        return (
            Script()
            .call(0, 0, 36_150, duration=20)
            .call(335, 0, 37_650)
            .call(365, 37_650, 1_500)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep the prefix alive with a small request in between."""
        return (
            Script()
            .call(0, 0, 36_150, duration=20)
            .call(270, 36_150, 0, purpose="keep_alive")
            .call(335, 36_150, 1_500)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if event.timing.state == "under" or (event.read and not event.is_floor):
                continue
            if is_expired(event):
                if not event.timing.eaten_by_request:
                    yield expired(event)
            else:
                yield Draft(
                    index=event.index,
                    rank=_RIVAL_RANK,
                    why="A hit after a longer gap speaks against it, but does not exclude it."
                    if event.timing.contradicted
                    else expiry_line(event),
                )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return refreshed(session, finding)
