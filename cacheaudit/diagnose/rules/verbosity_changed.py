"""Rule MDL210."""

from __future__ import annotations

from cacheaudit.diagnose.rule import override
from cacheaudit.diagnose.settings import SettingRule
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix


class VerbosityChanged(SettingRule):
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
    needs = ("usage", "requests")
    settings = ("verbosity", "text.verbosity")
    is_automatic = True
    provider_reasons = ("verbosity_changed",)
    fix = Fix("Keep the verbosity; ask for a short answer in words")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask for a short answer by the setting."""
        return cls.talk({}, {"verbosity": "low"})

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep the setting."""
        return cls.talk({}, {})
