"""Rule MDL202."""

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
_NAMES = ("thinking", "reasoning", "additionalModelRequestFields", "enable_thinking")


class ThinkingToggled(Rule):
    """Thinking was switched on or off, or got another budget.

    ## Why it costs

    The setting is part of what identifies the messages, and on some models it stands in front of
    the tools, so that nothing is read. A setting that flips from call to call keeps two lines of
    cached content and pays for both.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said. Nothing read agrees
    too: which models render the setting first is not published.

    ## When to ignore

    When it changes once, early.

    ## References

    code-yeongyu/senpi#1510; the provider's page on prompt caching.
    """

    id = "MDL202"
    name = "thinking-toggled"
    title = "The thinking setting changed"
    supersedes = ("parameter-changed",)
    fix = Fix("Keep thinking the same in every request of a session, tool continuations included")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Switch thinking off for a tool continuation."""
        first = request("task", "answer", "go on", thinking={"type": "adaptive"})
        second = request("task", "answer", "go on", "more", "next")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave it on."""
        first = request("task", "answer", "go on", thinking={"type": "adaptive"})
        second = request("task", "answer", "go on", "more", "next", thinking={"type": "adaptive"})
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
