"""Rule MDL205."""

from __future__ import annotations

from cacheaudit.diagnose.rule import override
from cacheaudit.diagnose.settings import SettingRule
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix


class SpeedChanged(SettingRule):
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
    needs = ("usage", "requests")
    settings = ("speed", "performanceConfig")
    supersedes = ("parameter-changed", "model-switched")
    fix = Fix("Keep one speed for a session")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Switch to fast."""
        return cls.talk({}, {"speed": "fast"})

    @classmethod
    @override
    def good(cls) -> Session:
        """Stay."""
        return cls.talk({}, {})
