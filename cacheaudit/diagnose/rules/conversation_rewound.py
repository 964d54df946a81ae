"""Rule PFX220."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff, diffs
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.mark_common import MarkCommon


class ConversationRewound(Rule):
    """A message was replaced, and nothing of what stood behind it was sent again.

    The user went back and took another way.

    ## Why it costs

    Nothing, where all that stands in front is read: no loss is told then. Else what an earlier
    request had not marked of it; the tokens counted hold new text too, which no cache could have
    had, so that the figure is an upper bound.

    ## What it rests on

    Recorded bodies: one message differs and nothing behind it recurs. Proved where the tokens read
    are those that earlier requests had marked in front of it; otherwise consistent, and what
    disagrees is said.

    ## When to ignore

    Nearly always; it is what the user wanted.

    ## References

    The provider's page on prompt caching: earlier markers stay readable.
    """

    id = "PFX220"
    name = "conversation-rewound"
    title = "The conversation went on from an earlier point"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed", "history-rewritten")
    fix = Fix("Nothing has to be done; a marker on every turn keeps the way back cheap")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Go back to the third message."""
        first = request("task", "one", "two", "three", "four")
        second = request("task", "one", "something else", "a longer answer", "and on")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Go on at the end."""
        first = request("task", "one", "two", "three", "four")
        second = request("task", "one", "two", "three", "four", "five", "six")
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        found = {diff.event.index: diff for diff in diffs(ctx)}
        for draft in named_drafts(ctx, _matches, says=_says):
            yield _bounded(draft, found[draft.index])

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return MarkCommon(calls=finding.calls)


def _bounded(draft: Draft, diff: Diff) -> Draft:
    """Where all that stands in front of the difference was read, nothing was lost."""
    slack = 0 if diff.reach is None else diff.reach.below
    if diff.shared_tokens - diff.event.read > slack:
        return draft
    return msgspec.structs.replace(draft, claims=0, void=True, established=draft.established[1:])


def _matches(diff: Diff) -> bool:
    return diff.shape == "rewound"


def _says(_: Diff) -> str | None:
    return "Nothing of what stood behind it is sent again: most of these tokens are new text."
