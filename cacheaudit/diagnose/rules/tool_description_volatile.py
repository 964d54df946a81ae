"""Rule TOL204."""

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


class ToolDescriptionVolatile(Rule):
    """The description of a tool differs from that of the request before.

    ## Why it costs

    Tools are rendered first. Whatever differs there makes the whole prompt new. A warning that is
    added after a failure, a list of open files or a date inside a description costs everything
    behind it.

    ## What it rests on

    Recorded bodies: the same tool with another description. Proved where the tokens read are those
    that earlier requests had marked in front of it; otherwise consistent, and what disagrees is
    said.

    ## When to ignore

    When it happens once, with an update of the server.

    ## References

    OpenDigitalProductFactory/opendigitalproductfactory#4251; sudoprivacy/sudocode#626.
    """

    id = "TOL204"
    name = "tool-description-volatile"
    title = "A tool's description changes from request to request"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("tools-changed",)
    fix = Fix(
        "Keep descriptions fixed; say what changed in the newest message or in the tool result"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Warn in the description that the last run failed."""
        plain = tool("run_tests", "Runs the tests.")
        warned = tool("run_tests", "Runs the tests. Warning: the last run failed.")
        first = request("task", "answer", "go on", tools=[plain])
        second = request("task", "answer", "go on", "more", "next", tools=[warned])
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Warn in the newest message."""
        tools = [tool("run_tests", "Runs the tests.")]
        first = request("task", "answer", "go on", tools=tools)
        second = request(
            "task", "answer", "go on", "more", "The last run failed. Next", tools=tools
        )
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
    return diff.shape == "tool_description"
