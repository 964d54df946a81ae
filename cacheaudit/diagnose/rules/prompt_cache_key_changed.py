"""Rule MDL207."""

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
_NAMES = ("prompt_cache_key",)


class PromptCacheKeyChanged(Rule):
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
    provider_reasons = ("prompt_cache_key_changed",)
    supersedes = ("parameter-changed",)
    fix = Fix("Use one key a conversation, made once")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Make a key for each request."""
        first = chat("task", "answer", "go on", prompt_cache_key="run-1")
        second = chat("task", "answer", "go on", "more", "next", prompt_cache_key="run-2")
        return continued(first, second, provider="openai", model="gpt-5.6")

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep the key."""
        first = chat("task", "answer", "go on", prompt_cache_key="run-1")
        second = chat("task", "answer", "go on", "more", "next", prompt_cache_key="run-1")
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
