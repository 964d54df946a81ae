"""Rule PFX208."""

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


class RepresentationDrift(Rule):
    """The content is the same, and its bytes are not.

    Blanks, line ends, escapes, the form of accented characters or of numbers differ.

    ## Why it costs

    The cache compares what is sent, not what is meant. A round trip through a store or another
    library that rewrites text makes everything behind it new.

    ## What it rests on

    Recorded bodies: two versions that are equal once blanks, escapes and number forms are left out
    of account. Proved where the tokens read are those that earlier requests had marked in front of
    it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    When it happened once, with an update of the client.

    ## References

    maximhq/bifrost#2082; stanfordnlp/dspy#10216.
    """

    id = "PFX208"
    name = "representation-drift"
    title = "The same content was written another way"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("system-changed", "messages-changed", "tools-changed")
    fix = Fix("Keep the bytes that were sent and send them back; do not parse and write them anew")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Store the answer with other line ends."""
        first = request("task", "line one\r\nline two", "go on")
        second = request("task", "line one\nline two", "go on", "more", "next")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Store it as it came."""
        first = request("task", "line one\r\nline two", "go on")
        second = request("task", "line one\r\nline two", "go on", "more", "next")
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return FreezeText()


def _matches(diff: Diff) -> bool:
    if diff.shape == "written_otherwise":
        return True
    return diff.is_text("system", "representation") or diff.is_text("messages", "representation")
