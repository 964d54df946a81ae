"""Rule CMP103."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import expiry_line, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

_RANK = 6


class CompactionRequestCold(Rule):
    """The request that summarises the conversation does not begin like the conversation.

    ## Why it costs

    The whole history is sent once more at full price, at the moment when it is largest. A summary
    request that appends its instruction to the conversation as it is, with the same tools and
    system prompt, reads nearly all of it.

    ## What it rests on

    A call recorded as a summary request that read less than a tenth of what was cached. Other tools
    or no system prompt differ from the first token on.

    ## When to ignore

    When the summary is written by a cheaper model with a short prompt.
    """

    id = "CMP103"
    name = "compaction-request-cold"
    title = "The summary request read nothing of the conversation that it summarises"
    fix = Fix(
        "Append the summary instruction to the conversation as it is, tools and system included"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Summarise without tools and system."""
        return (
            Script()
            .call(0, 0, 160_000)
            .call(60, 0, 0, uncached=152_000, purpose="compaction")
            .call(90, 15_000, 20_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Append the instruction."""
        return Script().call(0, 0, 160_000).call(60, 160_000, 900, purpose="compaction").session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if event.call.purpose == "compaction" and event.read * 10 < event.expected:
                if event.timing.state == "over" and not event.timing.contradicted:
                    continue
                yield Draft(
                    index=event.index,
                    claims=event.lost,
                    rank=_RANK,
                    why="It is a summary request with a prompt of its own.",
                    established=(shortfall(event), expiry_line(event)),
                    to_check=(
                        (
                            "Whether it carries the same tools, system prompt and messages, "
                            "with its instruction at the end."
                        ),
                    ),
                    rivals=(
                        Rival("tools-changed", "Summary requests are often sent without tools."),
                    ),
                    change=event.change,
                )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)
