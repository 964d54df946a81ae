"""Rule PFX212."""

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
from cacheaudit.simulate.edits.freeze_text import FreezeText


class ImageEncodedAnew(Rule):
    """A picture stands where one stood before, with other bytes.

    It was scaled, compressed or saved again.

    ## Why it costs

    The bytes of a picture are part of the prompt. A picture that is read from disk and encoded for
    each request makes everything behind it new.

    ## What it rests on

    Recorded bodies: two pictures with different digests at the same place. Proved where the tokens
    read are those that earlier requests had marked in front of it; otherwise consistent, and what
    disagrees is said.

    ## When to ignore

    When the user really exchanged the picture.

    ## References

    The provider's page on prompt caching, section on pictures.
    """

    id = "PFX212"
    name = "image-encoded-anew"
    title = "A picture of the history was encoded anew"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed",)
    fix = Fix("Encode a picture once and keep the encoded bytes")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Compress the picture again."""
        first = request("task", "answer", [image("aGVsbG8="), "what is this"], "a tree", "go on")
        second = request(
            "task", "answer", [image("aGVsbG8h"), "what is this"], "a tree", "go on", "more", "next"
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Send the same bytes."""
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
        return FreezeText(level="messages")


def _matches(diff: Diff) -> bool:
    return diff.shape == "image_recoded"
