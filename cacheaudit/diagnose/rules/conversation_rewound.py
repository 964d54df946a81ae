"""Rule PFX220."""

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
from cacheaudit.simulate.edits.mark_common import MarkCommon


class ConversationRewound(Rule):
    """A message was replaced, and nothing of what stood behind it was sent again.

    The user went back and took another way.

    ## Why it costs

    Little: what stands in front is read as far as an earlier request had marked it. The tokens
    counted here are mostly new text that no cache could have held, so that the figure is an upper
    bound.

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
        yield from named_drafts(ctx, _matches, says=_says)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return MarkCommon(calls=finding.calls)


def _matches(diff: Diff) -> bool:
    return diff.shape == "rewound"


def _says(_: Diff) -> str | None:
    return "Nothing of what stood behind it is sent again: most of these tokens are new text."
