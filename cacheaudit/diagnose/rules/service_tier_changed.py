"""Rule MDL208."""

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
_NAMES = ("service_tier",)


class ServiceTierChanged(Rule):
    """The request asks for another service tier than the one before it.

    ## Why it costs

    Tiers run on different machines; the provider's diagnostics name the change as a reason for a
    miss.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said. Or the provider's own
    word.

    ## When to ignore

    When the cheaper tier saves more than the one rewrite.

    ## References

    The miss reasons of the Responses API.
    """

    id = "MDL208"
    name = "service-tier-changed"
    title = "The service tier changed"
    provider_reasons = ("service_tier_changed",)
    supersedes = ("parameter-changed",)
    fix = Fix("Keep one tier for a conversation")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Send one call with the cheaper tier."""
        first = chat("task", "answer", "go on")
        second = chat("task", "answer", "go on", "more", "next", service_tier="flex")
        return continued(first, second, provider="openai", model="gpt-5.6")

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep the tier."""
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
