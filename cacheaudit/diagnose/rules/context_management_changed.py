"""Rule MDL206."""

from __future__ import annotations

from cacheaudit.diagnose.rule import override
from cacheaudit.diagnose.settings import SettingRule
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix


class ContextManagementChanged(SettingRule):
    """The rules by which the provider edits the context differ from the request before.

    ## Why it costs

    The setting is named among those that affect the prompt; what it edits changes the conversation
    from there on.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    When it changes once, early.

    ## References

    The provider's pages on context editing and on cache diagnostics.
    """

    id = "MDL206"
    name = "context-management-changed"
    title = "The context management changed"
    needs = ("usage", "requests")
    settings = ("context_management",)
    fix = Fix("Send the same context management with every request of a session")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Switch it on in mid-session."""
        return cls.talk(
            {}, {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave it off."""
        return cls.talk({}, {})
