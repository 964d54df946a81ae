"""Rule TOL101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import FRONT_RANK, changed_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.model.call import Session
from cacheaudit.model.change import Change
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.keep_front import KeepFront

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
    needs = ("usage", "requests")
    looks_at = ("bodies", "reasons")
    provider_reasons = ("tools_changed",)
    fix = Fix(
        "Declare all tools from the first request on, sorted by name; reveal late ones by tool "
        "search instead of inserting them"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Go on with another conversation, without tools."""
        first = request("task", "answer", "go on")
        second = request("job", "reply", "proceed", "done", "thanks", tools=())
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Go on with the first one, tools included."""
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "done", "thanks")
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from changed_drafts(ctx, self.provider_reasons, _is_tool, FRONT_RANK, _title)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        wanted = set(finding.calls)
        sent = [call.prompt for call in session.calls if call.id in wanted]
        bare = all(prompt is not None and not prompt.at_level("tools") for prompt in sent)
        return KeepFront(calls=finding.calls, others=True) if bare else None


def _is_tool(diff: Diff) -> bool:
    return diff.change.level == "tools" and diff.change.kind != "parameter"


def _title(change: Change) -> str:
    return f"{_WORDS.get(change.kind, 'A tool was edited:')} {change.path}"
