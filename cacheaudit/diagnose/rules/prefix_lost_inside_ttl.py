"""Rule PFX106."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import (
    MIXED,
    SERVER,
    aftermath,
    count,
    expiry_line,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

_RANK = 26


class PrefixLostInsideTtl(Rule):
    """Nothing at all was read, although the prefix cannot have expired.

    ## Why it costs

    The whole prompt is written again.

    ## What it rests on

    A read of zero and a gap surely inside the lifetime. What changed lies before the first marker
    that could have been hit: tools, the system prompt, the model, or a parameter that stands before
    them. From sizes alone it cannot be said which, nor can a loss on the provider's side be
    excluded.

    ## When to ignore

    When it happens once, right after a deliberate change.
    """

    id = "PFX106"
    name = "prefix-lost-inside-ttl"
    title = "Nothing was read although the prefix had not expired"
    needs = ("usage", "start_times")
    fix = Fix("Keep tools and system the same; record request bodies to see what changes in them")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Insert a tool between two calls."""
        return Script().call(0, 0, 32_800).call(35, 0, 34_650).call(60, 34_650, 1_500).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave the tools alone."""
        return Script().call(0, 0, 32_800).call(35, 32_800, 1_850).call(60, 34_650, 1_500).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if event.read or not event.explicit or event.switched is not None:
                continue
            if event.timing.state != "under" or event.has_bodies or event.timing.overlaps:
                continue
            yield _draft(event)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _draft(event: Event) -> Draft:
    lines = [shortfall(event), expiry_line(event)]
    if event.growth >= 0:
        lines.append(
            f"The prompt grew by {count(event.growth)} tokens; a difference in size does not tell "
            "where they were added."
        )
    successive = len(event.run.events)
    if successive > 1:
        lines.append(f"{successive} calls in a row read nothing.")
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="Nothing was read inside the lifetime.",
        established=(*lines, *aftermath(event), *reason_lines(event)),
        to_check=(
            "Compare tools, system prompt, model and parameters of the two requests.",
            "Ask for the provider's own miss diagnostics.",
        ),
        rivals=(
            Rival("tools-changed", "A tool added, removed, reordered or edited."),
            Rival("system-changed", "A system prompt that changed before the first marker."),
            Rival("parameter-changed", "A parameter that stands before tools or system."),
            SERVER,
            MIXED,
        ),
    )
