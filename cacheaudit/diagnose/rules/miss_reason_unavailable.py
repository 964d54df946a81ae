"""Rule MDL103."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import (
    IMAGES,
    LOOKBACK,
    PARAMETER,
    aftermath,
    count,
    expiry_line,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

_RANK = 20


class MissReasonUnavailable(Rule):
    """The provider gave no reason, which often means a parameter.

    ## Why it costs

    The prompt is written again from where it no longer matched.

    ## What it rests on

    The provider's `unavailable`. It is not a word for trouble on the provider's side: it
    includes requests whose model, system and tools are the same but whose other parameters, such
    as `thinking` or `tool_choice`, differ. So nothing is proved, and the caller's own
    parameters are the first thing to look at.

    ## When to ignore

    When the parameters were compared and are the same.
    """

    id = "MDL103"
    name = "miss-reason-unavailable"
    title = "The provider named no change; parameters such as tool_choice or thinking may differ"
    needs = ("usage", "provider_reasons")
    looks_at = ("reasons",)
    provider_reasons = ("unavailable",)
    fix = Fix("Keep tool_choice, thinking and effort the same over the session")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Change something that the provider does not name."""
        return (
            Script()
            .call(0, 0, 8_500)
            .call(20, 8_500, 30_650)
            .call(45, 7_350, 33_300, reason="unavailable")
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Change nothing."""
        return (
            Script()
            .call(0, 0, 8_500)
            .call(20, 8_500, 30_650)
            .call(45, 39_150, 1_500, reason="none")
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if event.reason in self.provider_reasons and event.change is None:
                yield _draft(event)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _draft(event: Event) -> Draft:
    lines = [shortfall(event), *reason_lines(event), expiry_line(event), *aftermath(event)]
    rivals: list[Rival] = [PARAMETER, LOOKBACK]
    if event.is_floor:
        lines.append(
            f"{count(event.read)} tokens at the front were read, less than the smallest prompt of "
            "the lane: the front still matches, the messages do not."
        )
        rivals.append(IMAGES)
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The provider named no change of tools, system or model.",
        verdict="consistent",
        evidence="reported",
        established=tuple(lines),
        to_check=("Compare tool_choice, thinking, effort and beta headers of the two requests.",),
        rivals=tuple(rivals),
    )
