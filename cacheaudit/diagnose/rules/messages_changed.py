"""Rule PFX102."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import MESSAGES_RANK, changed_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.model.call import Session
from cacheaudit.model.change import Change
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.append_only import AppendOnly


class MessagesChanged(Rule):
    """An earlier message was edited, moved, inserted or taken out.

    ## Why it costs

    Messages are read from the cache up to the first one that differs. History that is rendered
    anew - trimmed tool results, a picture turned into a text, a reminder that moves along,
    arguments written with another key order - is written again from there on.

    ## What it rests on

    Recorded bodies (proved, with path and byte), or the provider's `messages_changed`.

    ## When to ignore

    When the edit shortens the history so much that the shorter prompt pays for the rewrite.
    """

    id = "PFX102"
    name = "messages-changed"
    title = "Earlier messages changed"
    needs = ("usage", "requests")
    looks_at = ("bodies", "reasons")
    provider_reasons = ("messages_changed", "input_changed")
    fix = Fix("Only append to the history; send earlier messages back byte for byte")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Send the parts of the first message in another order."""
        first = request(["attachment", "task"], "answer", "go on")
        second = request(["task", "attachment"], "answer", "go on", "more", "next")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep their order."""
        first = request(["attachment", "task"], "answer", "go on")
        second = request(["attachment", "task"], "answer", "go on", "more", "next")
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from changed_drafts(ctx, self.provider_reasons, _is_message, MESSAGES_RANK, _title)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        place = finding.first_change
        return None if place is None else AppendOnly()


def _is_message(diff: Diff) -> bool:
    return diff.change.level == "messages" and diff.change.kind != "parameter"


def _title(change: Change) -> str:
    return f"History changed at {change.path}: {change.kind.replace('_', ' ')}"
