"""Rule TOL202."""

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
from cacheaudit.simulate.edits.late_tools import LateTools


class ToolRemoved(Rule):
    """A tool of the request before is missing.

    ## Why it costs

    Tools are rendered first. Whatever differs there makes the whole prompt new. A server that drops
    its connection, or a mode that hides some tools, costs the conversation twice: once when the
    tools go, once when they come back.

    ## What it rests on

    Recorded bodies: the names of the tools. Proved where the tokens read are those that earlier
    requests had marked in front of it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    When it happens once, early.

    ## References

    can1357/oh-my-pi#890; anthropics/claude-code#92033.
    """

    id = "TOL202"
    name = "tool-removed"
    title = "A tool was taken out in mid-conversation"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("tools-changed",)
    fix = Fix(
        "Keep the tool declared and answer its calls with an error, or forbid it in the "
        "newest message"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Take out a tool whose server is away."""
        first = request("task", "answer", "go on", tools=("query_db", "read_file", "run_tests"))
        second = request(
            "task", "answer", "go on", "more", "next", tools=("read_file", "run_tests")
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep it and say so."""
        tools = ("query_db", "read_file", "run_tests")
        first = request("task", "answer", "go on", tools=tools)
        second = request("task", "answer", "go on", "more", "query_db is away. Next", tools=tools)
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return LateTools()


def _matches(diff: Diff) -> bool:
    return diff.shape == "tools_removed"
