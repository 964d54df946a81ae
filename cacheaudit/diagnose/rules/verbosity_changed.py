"""Rule MDL210."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import chat, continued
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.steady_settings import SteadySettings

# The setting, as providers name it.
_NAMES = ("verbosity", "text.verbosity")


class VerbosityChanged(Rule):
    """The request asks for another verbosity than the one before it.

    ## Why it costs

    The setting is rendered into the prompt; what stands behind it is new.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said. Or the provider's own
    word.

    ## When to ignore

    When it changes once, early.

    ## References

    The guide on caching of the Responses API.
    """

    id = "MDL210"
    name = "verbosity-changed"
    title = "The verbosity changed"
    provider_reasons = ("verbosity_changed",)
    supersedes = ("parameter-changed",)
    fix = Fix("Keep the verbosity; ask for a short answer in words")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask for a short answer by the setting."""
        first = chat("task", "answer", "go on")
        second = chat("task", "answer", "go on", "more", "next", verbosity="low")
        return continued(first, second, provider="openai", model="gpt-5.6")

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep the setting."""
        first = chat("task", "answer", "go on")
        second = chat("task", "answer", "go on", "more", "next")
        return continued(first, second, provider="openai", model="gpt-5.6")

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
