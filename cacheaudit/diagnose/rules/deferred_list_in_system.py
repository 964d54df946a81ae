"""Rule TOL207."""

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
from cacheaudit.simulate.edits.freeze_text import FreezeText


class DeferredListInSystem(Rule):
    """A list of tools in the system prompt changed.

    It is typically the list of deferred tools, and a tool that is revealed leaves it.

    ## Why it costs

    The system prompt stands before every message: with each tool that is revealed the whole
    conversation is written again, although the tools themselves may be added without loss.

    ## What it rests on

    Recorded bodies: system texts that differ in names of tools. Proved where the tokens read are
    those that earlier requests had marked in front of it; otherwise consistent, and what disagrees
    is said.

    ## When to ignore

    When tools are revealed in the first turn only.

    ## References

    QwenLM/qwen-code#4777; srtab/daiv#1171; QwenLM/qwen-code#10410.
    """

    id = "TOL207"
    name = "deferred-list-in-system"
    title = "The system prompt lists the tools that can still be loaded"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("system-changed",)
    fix = Fix(
        "Move the list into a message, or offer a fixed pair of tools that searches and calls"
        " the others"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Take a tool that was revealed out of the list."""
        head = "You help with code.\nDeferred tools, to be loaded by search:\n"
        first = request("task", "answer", "go on", system=head + "- mail_read\n- mail_send")
        second = request("task", "answer", "go on", "more", "next", system=head + "- mail_send")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave the list in the first message."""
        opening = ["Deferred tools:\n- mail_read\n- mail_send", "task"]
        first = request(opening, "answer", "go on")
        second = request(opening, "answer", "go on", "more", "next")
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return FreezeText(level="system")


def _matches(diff: Diff) -> bool:
    return diff.is_text("system", "tool_list")
