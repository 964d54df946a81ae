"""Rule TTL102."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.expiry import expired, is_expired
from cacheaudit.diagnose.mends import refreshed
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit


class TtlUsedUpByLongRequest(Rule):
    """A request took so long that its own prefix expired soon after the response ended.

    ## Why it costs

    The clock of a lifetime starts when a request starts, not when its response ends. A request of
    two and a half minutes leaves two and a half of five, so that a pause well below five minutes is
    already too long, and the whole prompt is written again.

    ## What it rests on

    The whole interval from start to start lies beyond the lifetime, while the time between the end
    of the response and the next request is shorter than it, and the request itself took at least a
    tenth of it. Stamps of the end of responses alone, as most logs hold them, show a pause that
    looks harmless.

    ## When to ignore

    When responses that long are rare.
    """

    id = "TTL102"
    name = "ttl-used-up-by-long-request"
    title = "A long request used up the lifetime of the prefix"
    needs = ("usage", "start_times")
    fix = Fix(
        "Refresh the prefix before it expires, counted from the start of the long request, or "
        "ask for a longer lifetime"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Generate for two and a half minutes, then pause for three."""
        return (
            Script()
            .call(0, 0, 36_150, duration=150)
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
            .call(0, 0, 36_150, duration=150)
            .call(270, 36_150, 0, purpose="keep_alive")
            .call(335, 36_150, 1_500)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if is_expired(event) and event.timing.eaten_by_request:
                yield expired(event)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return refreshed(session, finding)
