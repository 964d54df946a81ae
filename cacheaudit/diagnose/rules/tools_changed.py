"""Rule TOL101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import FRONT_RANK, changed_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.examples import Script, body
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.model.call import Session
from cacheaudit.model.change import Change
from cacheaudit.model.finding import Fix

_WORDS = {
    "added": "A tool was added at",
    "removed": "A tool was removed at",
    "reordered": "The tools were reordered from",
    "key_order_only": "JSON keys changed their order in",
    "representation_only": "The same JSON was written another way in",
    "moved": "A tool moved from",
}


class ToolsChanged(Rule):
    """The list of tools is not the one of the request before.

    ## Why it costs

    Tools are rendered first. Whatever differs there - a tool added, removed, reordered, a word
    in a description, the order of keys in a schema - makes everything behind it new, and the whole
    prompt is written again.

    ## What it rests on

    Recorded bodies (proved, with path and byte), or the provider's `tools_changed`.

    ## When to ignore

    When the change happens once, early, while the prompt is short.
    """

    id = "TOL101"
    name = "tools-changed"
    title = "The tools changed"
    provider_reasons = ("tools_changed",)
    fix = Fix(
        "Declare all tools from the first request on, sorted by name; reveal late ones by tool "
        "search instead of inserting them"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Insert a tool into the middle of the list."""
        first = body("a", "b", "c", tools=("read_file", "run_tests"))
        second = body("a", "b", "c", "d", "e", tools=("read_file", "query_db", "run_tests"))
        return Script().call(0, 0, 30_000, body=first).call(35, 0, 31_850, body=second).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Declare it from the beginning."""
        tools = ("read_file", "query_db", "run_tests")
        first = body("a", "b", "c", tools=tools)
        second = body("a", "b", "c", "d", "e", tools=tools)
        return (
            Script().call(0, 0, 30_350, body=first).call(35, 30_350, 1_500, body=second).session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from changed_drafts(ctx, self.provider_reasons, _is_tool, FRONT_RANK, _title)


def _is_tool(diff: Diff) -> bool:
    return diff.change.level == "tools" and diff.change.kind != "parameter"


def _title(change: Change) -> str:
    return f"{_WORDS.get(change.kind, 'A tool was edited:')} {change.path}"
