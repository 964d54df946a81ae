"""Rule MDL203."""

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
_NAMES = ("output_config.effort", "reasoning_effort", "reasoning.effort")


class EffortChanged(Rule):
    """Another effort was asked for than in the request before.

    ## Why it costs

    Effort is part of what identifies the messages, on some models of the whole prompt. Saying the
    default and saying nothing are the same.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said. Or the provider's own
    word.

    ## When to ignore

    When it changes once, at a point where the prompt is short.

    ## References

    The provider's page on prompt caching; facts on effort given with a message instead.
    """

    id = "MDL203"
    name = "effort-changed"
    title = "The effort changed"
    provider_reasons = ("reasoning_effort_changed",)
    supersedes = ("parameter-changed",)
    fix = Fix("Keep the effort; where the model takes one with a message, give it there")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask for less effort once."""
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", "next", output_config={"effort": "low"})
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep it."""
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", "next")
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches, reasons=self.provider_reasons)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return SteadySettings(names=_NAMES)


def _matches(diff: Diff) -> bool:
    return diff.is_parameter(*_NAMES)
