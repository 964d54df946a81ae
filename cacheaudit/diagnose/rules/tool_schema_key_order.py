"""Rule TOL205."""

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
from cacheaudit.simulate.edits.normalise import Normalise


class ToolSchemaKeyOrder(Rule):
    """A tool was sent as equal JSON with its keys in another order.

    ## Why it costs

    Tools are rendered first. Whatever differs there makes the whole prompt new. The schema is part
    of the prompt as text. Serialisers that walk a map give another order in each process.

    ## What it rests on

    Recorded bodies: the JSON of the definition is equal, its bytes are not. Proved where the tokens
    read are those that earlier requests had marked in front of it; otherwise consistent, and what
    disagrees is said.

    ## When to ignore

    Never.

    ## References

    openai/codex#2611; github/copilot-sdk#1931; maximhq/bifrost#2082.
    """

    id = "TOL205"
    name = "tool-schema-key-order"
    title = "The keys of a tool definition came in another order"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("tools-changed",)
    fix = Fix("Write schemas with sorted keys, or keep the text that was sent first")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Write the parameters in another order."""
        path, lines = {"type": "string"}, {"type": "integer"}
        first = request(
            "task", "answer", "go on", tools=[tool("read_file", path=path, lines=lines)]
        )
        tools = [tool("read_file", lines=lines, path=path)]
        second = request("task", "answer", "go on", "more", "next", tools=tools)
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Write them in one order."""
        path, lines = {"type": "string"}, {"type": "integer"}
        tools = [tool("read_file", lines=lines, path=path)]
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
        return Normalise()


def _matches(diff: Diff) -> bool:
    return diff.shape == "key_order" and diff.change.level == "tools"
