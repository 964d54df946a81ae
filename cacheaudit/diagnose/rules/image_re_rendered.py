"""Rule PFX211."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, image, request
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.append_only import AppendOnly


class ImageReRendered(Rule):
    """A picture that had been sent is sent back as a text.

    That is a path, a caption, a note that it was left out.

    ## Why it costs

    Everything behind the picture is written again, which is usually far more than the picture's own
    tokens.

    ## What it rests on

    Recorded bodies: a picture before, a block without one now. Proved where the tokens read are
    those that earlier requests had marked in front of it; otherwise consistent, and what disagrees
    is said.

    ## When to ignore

    When many pictures go at once and the conversation goes on for long.

    ## References

    anthropics/claude-code#91705; browser-use/browser-use#5848.
    """

    id = "PFX211"
    name = "image-re-rendered"
    title = "A picture of the history was replaced by a text"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed",)
    fix = Fix(
        "Leave pictures in the history, or replace them before they are cached for the first time"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Replace the picture by its name in the next request."""
        first = request("task", "answer", [image(), "what is this"], "a tree", "go on")
        second = request(
            "task",
            "answer",
            ["[picture 1: tree.png]", "what is this"],
            "a tree",
            "go on",
            "more",
            "next",
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave it in."""
        first = request("task", "answer", [image(), "what is this"], "a tree", "go on")
        second = request(
            "task", "answer", [image(), "what is this"], "a tree", "go on", "more", "next"
        )
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return AppendOnly()


def _matches(diff: Diff) -> bool:
    return diff.shape == "image_replaced"
