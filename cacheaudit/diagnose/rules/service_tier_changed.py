"""Rule MDL208."""

from __future__ import annotations

from cacheaudit.diagnose.rule import override
from cacheaudit.diagnose.settings import SettingRule
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix


class ServiceTierChanged(SettingRule):
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
    needs = ("usage", "requests")
    settings = ("service_tier",)
    is_automatic = True
    provider_reasons = ("service_tier_changed",)
    fix = Fix("Keep one tier for a conversation")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Send one call with the cheaper tier."""
        return cls.talk({}, {"service_tier": "flex"})

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep the tier."""
        return cls.talk({}, {})
