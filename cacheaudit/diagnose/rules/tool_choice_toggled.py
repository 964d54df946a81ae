"""Rule MDL201."""

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
_NAMES = ("tool_choice", "toolConfig.toolChoice")


class ToolChoiceToggled(Rule):
    """The request forces a tool, or forbids tools, and the one before it did not.

    ## Why it costs

    `tool_choice` is part of what identifies the messages: tools and system are read, the whole
    conversation is written again. Going back reads what the earlier choice had left.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said. Whether it is part of
    the key was disputed in public; the provider's page says so, and a full read in spite of it is
    never reported here.

    ## When to ignore

    When the forced call is needed and the conversation is short.

    ## References

    The provider's page on prompt caching, table of what invalidates what; can1357/oh-my-pi#12602
    for the dispute.
    """

    id = "MDL201"
    name = "tool-choice-toggled"
    title = "tool_choice changed"
    supersedes = ("parameter-changed",)
    fix = Fix("Leave the choice to the model and ask for the tool in the newest message")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Force a tool for one call."""
        forced = {"type": "tool", "name": "run_tests"}
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", "next", tool_choice=forced)
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask for it."""
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", "Run the tests now.")
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
