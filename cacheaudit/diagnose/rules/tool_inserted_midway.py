"""Rule TOL201."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.diagnose.shapes import names_of
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.late_tools import LateTools


class ToolInsertedMidway(Rule):
    """The list of tools has a tool that the request before did not have.

    ## Why it costs

    Tools are rendered first. Whatever differs there makes the whole prompt new. Only the tools in
    front of the new one are the same, and they are read only if one of them is marked. Servers that
    connect late and tools that are revealed on demand are the usual reasons.

    ## What it rests on

    Recorded bodies: the names of the tools. Proved where the tokens read are those that earlier
    requests had marked in front of it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    When it happens once, early, while the prompt is short.

    ## References

    anthropics/claude-code#92033; dust-tt/dust#27655; the tool pair of the recorded captures.
    """

    id = "TOL201"
    name = "tool-inserted-midway"
    title = "A tool was added in mid-conversation"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("tools-changed",)
    fix = Fix(
        "Declare all tools from the first request on, or reveal late ones inside the "
        "conversation (tool search, `tool_addition`)"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Add a tool in front of the others."""
        first = request("task", "answer", "go on", tools=("read_file", "run_tests"))
        tools = ("query_db", "read_file", "run_tests")
        second = request("task", "answer", "go on", "more", "next", tools=tools)
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Declare it from the beginning."""
        tools = ("query_db", "read_file", "run_tests")
        first = request("task", "answer", "go on", tools=tools)
        second = request("task", "answer", "go on", "more", "next", tools=tools)
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches, title=_title)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return LateTools()


def _matches(diff: Diff) -> bool:
    return diff.shape == "tools_added"


def _title(diff: Diff) -> str | None:
    names = set(names_of(diff.after)) - set(names_of(diff.before))
    gone = set(names_of(diff.before)) - set(names_of(diff.after))
    what = f"{len(names)} tools were added" if len(names) > 1 else "A tool was added"
    return f"{what} in mid-conversation" + (f", {len(gone)} taken out" if gone else "")
