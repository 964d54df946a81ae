"""Rule MDL201."""

from __future__ import annotations

from cacheaudit.diagnose.rule import override
from cacheaudit.diagnose.settings import SettingRule
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix


class ToolChoiceToggled(SettingRule):
    """The request forces a tool, or forbids tools, and the one before it did not.

    ## Why it costs

    `tool_choice` is part of what identifies the messages: tools and system are read, the whole
    conversation is written again. Going back reads what the earlier choice had left.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said. Whether it is part of
    the key was disputed in public; the provider's page says so, and a full read in spite of it is
    never reported here.

    ## When to ignore

    When the forced call is needed and the conversation is short.

    ## References

    The provider's page on prompt caching, table of what invalidates what; can1357/oh-my-pi#12602
    for the dispute.
    """

    id = "MDL201"
    name = "tool-choice-toggled"
    title = "tool_choice changed"
    needs = ("usage", "requests")
    settings = ("tool_choice", "toolConfig.toolChoice")
    fix = Fix("Leave the choice to the model and ask for the tool in the newest message")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Force a tool for one call."""
        return cls.talk({}, {"tool_choice": {"type": "tool", "name": "run_tests"}})

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask for it."""
        return cls.talk({}, {}, last="Run the tests now.")
