"""Rule MDL209."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.steady_settings import SteadySettings

# The setting, as providers name it.
_NAMES = ("tool_choice.disable_parallel_tool_use", "parallel_tool_calls")


class ParallelToolUseToggled(Rule):
    """Parallel tool calls were allowed before and are not now, or the other way round.

    ## Why it costs

    The setting is part of what identifies the messages, with some providers of the whole prompt.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    When it changes once, early.

    ## References

    The provider's page on prompt caching, table of what invalidates what.
    """

    id = "MDL209"
    name = "parallel-tool-use-toggled"
    title = "Parallel tool use was switched"
    supersedes = ("parameter-changed",)
    fix = Fix("Keep the setting, and ask for one call at a time in words")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Switch parallel calls off."""
        single = {"type": "auto", "disable_parallel_tool_use": True}
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", "next", tool_choice=single)
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep them off from the start."""
        single = {"type": "auto", "disable_parallel_tool_use": True}
        first = request("task", "answer", "go on", tool_choice=single)
        second = request("task", "answer", "go on", "more", "next", tool_choice=single)
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return SteadySettings(names=_NAMES)


def _matches(diff: Diff) -> bool:
    return diff.is_parameter(*_NAMES)
