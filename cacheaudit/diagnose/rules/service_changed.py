"""Rule RTE108."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.one_route import OneRoute

_RANK = 8


class ServiceChanged(Rule):
    """The request went to another platform or surface than the one before.

    ## Why it costs

    Caches belong to one service. The same model behind another platform has nothing of the
    conversation.

    ## What it rests on

    The record names another service for the two calls.

    ## When to ignore

    When the move was wanted.
    """

    id = "RTE108"
    name = "service-changed"
    title = "The conversation went on with another service"
    fix = Fix("Keep a conversation on the service where it began")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Move to another platform in mid-conversation."""
        return _moved(
            Script().call(0, 0, 30_000).call(30, 0, 31_000).call(60, 31_000, 500).session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Stay."""
        return Script().call(0, 0, 30_000).call(30, 30_000, 1_000).call(60, 31_000, 500).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            before, now = event.previous.surface, event.call.surface
            if before is None or now is None or before == now:
                continue
            yield Draft(
                index=event.index,
                claims=event.lost,
                rank=_RANK,
                why="The record names another service.",
                established=(
                    shortfall(event),
                    (
                        f"The call before went to {before}, this one to {now}; services do not "
                        "share cached content."
                    ),
                ),
                to_check=("Whether anything else changed in the same moment.",),
                rivals=(
                    Rival("system-changed", "Clients often send other instructions elsewhere."),
                ),
            )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return OneRoute(surface=True)


def _moved(session: Session) -> Session:
    first, *others = session.calls
    calls = (
        msgspec.structs.replace(first, surface="bedrock"),
        *(msgspec.structs.replace(call, surface="claude_api") for call in others),
    )
    return msgspec.structs.replace(session, calls=calls)
