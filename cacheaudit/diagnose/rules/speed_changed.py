"""Rule MDL205."""

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
_NAMES = ("speed", "performanceConfig")


class SpeedChanged(Rule):
    """The request asks for another speed than the one before it.

    ## Why it costs

    Fast and standard speed do not share system and messages; the provider's diagnostics count a
    change of speed as a change of model.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said. Sources differ on the
    level: one page says system, the diagnostics say model, a client's page says that only the
    header counts.

    ## When to ignore

    When it changes once.

    ## References

    The provider's page on prompt caching, table of what invalidates what.
    """

    id = "MDL205"
    name = "speed-changed"
    title = "The speed changed"
    supersedes = ("parameter-changed", "model-switched")
    fix = Fix("Keep one speed for a session")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Switch to fast."""
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", "next", speed="fast")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Stay."""
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
