"""Rule MDL204."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.steady_settings import SteadySettings

# The setting, as providers name it.
_NAMES = ("output_config.format", "outputConfig", "response_format", "text.format")


class OutputFormatChanged(Rule):
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
    provider_reasons = ("text_format_changed",)
    supersedes = ("parameter-changed",)
    fix = Fix("Ask for the format with a tool, or keep one format over the session")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask for JSON at the end."""
        first = request("task", "answer", "go on")
        second = request(
            "task",
            "answer",
            "go on",
            "more",
            "next",
            output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask for it in words."""
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", "next")
        return continued(first, second)

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
