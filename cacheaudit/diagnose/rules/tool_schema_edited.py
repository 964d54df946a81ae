"""Rule TOL206."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request, tool
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.freeze_text import FreezeText


class ToolSchemaEdited(Rule):
    """A tool's schema differs from the request before.

    Any field of it but the description counts.

    ## Why it costs

    Tools are rendered first. Whatever differs there makes the whole prompt new. Choices that are
    listed in a schema - branches, files, models - are the usual reason.

    ## What it rests on

    Recorded bodies: the same tool with another schema. Proved where the tokens read are those that
    earlier requests had marked in front of it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    When it happens once, with an update of the server.

    ## References

    The provider's page on prompt caching, table of what invalidates what.
    """

    id = "TOL206"
    name = "tool-schema-edited"
    title = "A tool's schema changed"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("tools-changed",)
    fix = Fix("Keep schemas fixed: take a text instead of a list of choices that changes")

    @classmethod
    @override
    def bad(cls) -> Session:
        """List the branches in the schema."""
        first = request(
            "task", "answer", "go on", tools=[tool("checkout", branch={"enum": ["main"]})]
        )
        tools = [tool("checkout", branch={"enum": ["main", "topic"]})]
        second = request("task", "answer", "go on", "more", "next", tools=tools)
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Take any text."""
        tools = [tool("checkout", branch={"type": "string"})]
        first = request("task", "answer", "go on", tools=tools)
        second = request("task", "answer", "go on", "more", "next", tools=tools)
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return FreezeText(level="tools")


def _matches(diff: Diff) -> bool:
    return diff.shape == "tool_schema"
