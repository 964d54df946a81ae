"""Rule DAT102."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session


class ReportedChangeWithoutLoss(Rule):
    """The provider names a change, but the usage shows no loss.

    ## Why it is shown

    The provider compares the structure of two requests, not what the cache did. Where the two
    disagree, the usage is what is billed; the reason may be about another pair of requests than
    the neighbours in the record.

    ## What it rests on

    A reason such as `messages_changed` on a call that read all it could.

    ## When to ignore

    Always, unless it comes often: then look at which message id is sent for comparison.
    """

    id = "DAT102"
    name = "reported-change-without-loss"
    title = "The provider named a change, but nothing was lost"
    kind = "note"
    needs = ("usage", "provider_reasons")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Compare with another request."""
        return Script().call(0, 0, 9_000).call(30, 9_000, 900, reason="messages_changed").session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Compare with the one before."""
        return Script().call(0, 0, 9_000).call(30, 9_000, 900, reason="none").session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        lost = {event.index for event in ctx.events}
        first = {opening.index for opening in ctx.openings}
        for index in ctx.reasoned:
            if index in lost or index in first:
                continue
            call = ctx.session.calls[index]
            said = call.diagnostics.type if call.diagnostics is not None else ""
            read = call.usage.cache_read if call.usage is not None else None
            yield Draft(
                index=index,
                verdict="unknown",
                evidence="reported",
                established=(
                    (
                        f"{call.id}: the provider says `{said}`, yet {count(read or 0)} tokens "
                        "were read, all that the call before had left in the cache."
                    ),
                ),
                to_check=("Which earlier request the comparison was made with.",),
            )
