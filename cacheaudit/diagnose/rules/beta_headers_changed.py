"""Rule MDL211."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import Scene, request
from cacheaudit.diagnose.wording import (
    SERVER,
    aftermath,
    expiry_line,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.betas import betas_of
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.steady_betas import SteadyBetas

_RANK = 13


class BetaHeadersChanged(Rule):
    """The set of beta features that the request asks for changed.

    ## Why it costs

    The provider's diagnostics count the active features among what affects the prompt. Some of them
    add text to it; at which level is not said.

    ## What it rests on

    Recorded headers that differ while the bodies, where they were recorded, do not. Since no
    source says what a feature drops, the verdict is never more than consistent.

    ## When to ignore

    When the client was updated in between.

    ## References

    The provider's page on cache diagnostics.
    """

    id = "MDL211"
    name = "beta-headers-changed"
    title = "The set of beta features changed"
    rests_on = MappingProxyType({"beta_headers": "tools"})
    fix = Fix("Send the same beta header with every request of a session")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask for one more feature in mid-session."""
        return (
            Scene()
            .send(request("task", "answer", "go on"), betas=["a-2026-01-01"])
            .send(
                request("task", "answer", "go on", "more", "next"),
                betas=["a-2026-01-01", "b-2026-02-02"],
                read=0,
            )
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask for it from the beginning."""
        betas = ["a-2026-01-01", "b-2026-02-02"]
        return (
            Scene()
            .send(request("task", "answer", "go on"), betas=betas)
            .send(request("task", "answer", "go on", "more", "next"), betas=betas)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if event.change is not None or event.switched is not None:
                continue
            if event.timing.state == "over" and not event.timing.contradicted:
                continue
            before, now = betas_of(event.previous), betas_of(event.call)
            if before is not None and now is not None and set(before) != set(now):
                more, fewer = set(now) - set(before), set(before) - set(now)
                yield _draft(event, len(more), len(fewer))

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return SteadyBetas()


def _draft(event: Event, more: int, fewer: int) -> Draft:
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The set of beta features differs.",
        evidence="body_diff" if event.has_bodies else "usage",
        established=(
            shortfall(event),
            f"Against the request before, {more} beta features came and {fewer} went.",
            *(("The bodies show an unchanged prefix.",) if event.has_bodies else ()),
            expiry_line(event),
            *reason_lines(event),
            *aftermath(event),
        ),
        to_check=("Whether the next change of the set loses the prefix too.",),
        rivals=(SERVER,),
    )
