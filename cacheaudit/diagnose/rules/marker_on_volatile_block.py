"""Rule BRK202."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import NAMED_MESSAGES_RANK, body_draft
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff, diffs
from cacheaudit.diagnose.reach import markers
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.diagnose.steps import is_much, minimum_of
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.stable_markers import StableMarkers

# Behind the rules that name the text, in front of those that only say that it changed.
_FRONT_RANK = 8


class MarkerOnVolatileBlock(Rule):
    """The first marker stands on a content block that is different in every request.

    ## Why it costs

    A cache entry covers everything up to its marker. With something volatile at its end no request
    finds it again: each one writes the stable part in front of it and none reads it.

    ## What it rests on

    Recorded bodies: the first difference lies on the first marked block, and a stable part long
    enough to be cached stands in front of it. Proved where nothing was read.

    ## When to ignore

    When the stable part is sent once only.

    ## References

    The provider's page on prompt caching, example of a changing last block.
    """

    id = "BRK202"
    name = "marker-on-volatile-block"
    title = "The first marker stands on content that is different in every request"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("system-changed", "messages-changed", "history-message-edited")
    fix = Fix("Move the marker to the last content block that stays the same")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Mark the question behind a document."""
        first = request(["document", "question one"], mark=("last",))
        second = request(["document", "question two"], mark=("last",))
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Mark the system prompt and send the document with it."""
        system = ("You answer questions.", "document")
        first = request("question one", system=system, mark=("system",))
        second = request("question two", system=system, mark=("system",))
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for diff in diffs(ctx):
            if _matches(diff):
                size = count(diff.shared_tokens)
                says = f"{size} tokens in front of the marked block are the same in both requests."
                rank = _FRONT_RANK if diff.in_front else NAMED_MESSAGES_RANK
                yield body_draft(diff, rank=rank, says=(says,))

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return StableMarkers()


def _matches(diff: Diff) -> bool:
    if not diff.event.explicit or diff.old is None or diff.new is None:
        return False
    at = diff.change.blocks_before
    is_first = markers(diff.before)[:1] == [at] and markers(diff.after)[:1] == [at]
    shared = diff.shared_tokens
    is_long = shared >= minimum_of(diff.event.call) and is_much(shared, diff.event.total)
    found = diff.reach
    return is_first and is_long and found is not None and found.marked and found.tokens == 0
