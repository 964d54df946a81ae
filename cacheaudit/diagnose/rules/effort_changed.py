"""Rule MDL203."""

from __future__ import annotations

from cacheaudit.diagnose.rule import override
from cacheaudit.diagnose.settings import SettingRule
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix


class EffortChanged(SettingRule):
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
    needs = ("usage", "requests")
    settings = ("output_config.effort", "reasoning_effort", "reasoning.effort")
    provider_reasons = ("reasoning_effort_changed",)
    fix = Fix("Keep the effort; where the model takes one with a message, give it there")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask for less effort once."""
        return cls.talk({}, {"output_config": {"effort": "low"}})

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep it."""
        return cls.talk({}, {})
