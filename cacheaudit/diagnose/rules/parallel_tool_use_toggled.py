"""Rule MDL209."""

from __future__ import annotations

from cacheaudit.diagnose.rule import override
from cacheaudit.diagnose.settings import SettingRule
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix


class ParallelToolUseToggled(SettingRule):
    """Parallel tool calls were allowed before and are not now, or the other way round.

    ## Why it costs

    The setting is part of what identifies the messages, with some providers of the whole prompt.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    When it changes once, early.

    ## References

    The provider's page on prompt caching, table of what invalidates what.
    """

    id = "MDL209"
    name = "parallel-tool-use-toggled"
    title = "Parallel tool use was switched"
    needs = ("usage", "requests")
    settings = ("tool_choice.disable_parallel_tool_use", "parallel_tool_calls")
    fix = Fix("Keep the setting, and ask for one call at a time in words")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Switch parallel calls off."""
        return cls.talk({}, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}})

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep them off from the start."""
        return cls.talk(
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        )
