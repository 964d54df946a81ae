"""Rule MDL204."""

from __future__ import annotations

from cacheaudit.diagnose.rule import override
from cacheaudit.diagnose.settings import SettingRule
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix


class OutputFormatChanged(SettingRule):
    """A schema for the answer was added, taken away or changed.

    ## Why it costs

    The schema is rendered as part of the system prompt: all messages behind it are new. Some models
    render it in front of the tools.

    ## What it rests on

    Recorded bodies: the setting. Proved where the tokens read are those that earlier requests had
    marked in front of it; otherwise consistent, and what disagrees is said. Or the provider's own
    word.

    ## When to ignore

    When the structured answer is the last call of the conversation and the prompt is short.

    ## References

    The provider's page on structured outputs; the guide on caching of the Responses API.
    """

    id = "MDL204"
    name = "output-format-changed"
    title = "The output format changed"
    needs = ("usage", "requests")
    settings = ("output_config.format", "outputConfig", "response_format", "text.format")
    provider_reasons = ("text_format_changed",)
    fix = Fix("Ask for the format with a tool, or keep one format over the session")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask for JSON at the end."""
        return cls.talk(
            {}, {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask for it in words."""
        return cls.talk({}, {})
