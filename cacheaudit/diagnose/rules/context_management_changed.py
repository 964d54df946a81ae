"""Rule MDL206."""

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
_NAMES = ("context_management",)


class ContextManagementChanged(Rule):
    """The rules by which the provider edits the context differ from the request before.

    ## Why it costs

    The setting is named among those that affect the prompt; what it edits changes the conversation
    from there on.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    When it changes once, early.

    ## References

    The provider's pages on context editing and on cache diagnostics.
    """

    id = "MDL206"
    name = "context-management-changed"
    title = "The context management changed"
    supersedes = ("parameter-changed",)
    fix = Fix("Send the same context management with every request of a session")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Switch it on in mid-session."""
        first = request("task", "answer", "go on")
        second = request(
            "task",
            "answer",
            "go on",
            "more",
            "next",
            context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave it off."""
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", "next")
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
