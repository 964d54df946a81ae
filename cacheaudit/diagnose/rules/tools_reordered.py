"""Rule TOL203."""

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
from cacheaudit.simulate.edits.sort_tools import SortTools


class ToolsReordered(Rule):
    """The list holds the same tools in another order.

    ## Why it costs

    Tools are rendered first. Whatever differs there makes the whole prompt new. Tools that come out
    of a map, or out of servers in the order in which they answer, have another order in each
    process or after each reconnect.

    ## What it rests on

    Recorded bodies: equal sets of names in another order. Proved where the tokens read are those
    that earlier requests had marked in front of it; otherwise consistent, and what disagrees is
    said.

    ## When to ignore

    Never; sorting costs nothing.

    ## References

    can1357/oh-my-pi#890; openai/codex#2611.
    """

    id = "TOL203"
    name = "tools-reordered"
    title = "The same tools were sent in another order"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("tools-changed",)
    fix = Fix("Sort the tools by name before every request")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Put the tools of a server that reconnected at the end."""
        first = request("task", "answer", "go on", tools=("a_one", "a_two", "b_one"))
        tools = ("b_one", "a_one", "a_two")
        second = request("task", "answer", "go on", "more", "next", tools=tools)
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Sort them."""
        tools = ("a_one", "a_two", "b_one")
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
        return SortTools()


def _matches(diff: Diff) -> bool:
    return diff.shape == "tools_reordered"
