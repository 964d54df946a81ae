"""Rule MDL202."""

from __future__ import annotations

from cacheaudit.diagnose.rule import override
from cacheaudit.diagnose.settings import SettingRule
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix


class ThinkingToggled(SettingRule):
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
    needs = ("usage", "requests")
    settings = ("thinking", "reasoning", "additionalModelRequestFields", "enable_thinking")
    fix = Fix("Keep thinking the same in every request of a session, tool continuations included")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Switch thinking off for a tool continuation."""
        return cls.talk({"thinking": {"type": "adaptive"}}, {})

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave it on."""
        return cls.talk({"thinking": {"type": "adaptive"}}, {"thinking": {"type": "adaptive"}})
