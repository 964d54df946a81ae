"""Rule MDL207."""

from __future__ import annotations

from cacheaudit.diagnose.rule import override
from cacheaudit.diagnose.settings import SettingRule
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix


class PromptCacheKeyChanged(SettingRule):
    """The request names another cache key than the one before it.

    ## Why it costs

    On newer models it takes part in the key of the cache; on older ones it decides which machine is
    asked, so that the verdict is no more than consistent there. A key made anew for each request
    hides every earlier prefix.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said. Or the provider's own
    word.

    ## When to ignore

    When a new conversation begins.

    ## References

    The guide on caching of the Responses API; facts on `prompt_cache_key`.
    """

    id = "MDL207"
    name = "prompt-cache-key-changed"
    title = "The prompt_cache_key changed"
    needs = ("usage", "requests")
    settings = ("prompt_cache_key",)
    is_automatic = True
    provider_reasons = ("prompt_cache_key_changed",)
    fix = Fix("Use one key a conversation, made once")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Make a key for each request."""
        return cls.talk({"prompt_cache_key": "run-1"}, {"prompt_cache_key": "run-2"})

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep the key."""
        return cls.talk({"prompt_cache_key": "run-1"}, {"prompt_cache_key": "run-1"})
