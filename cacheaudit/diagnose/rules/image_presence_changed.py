"""Rule PFX222."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.reach import size_before
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import Scene, image, request
from cacheaudit.diagnose.wording import (
    SERVER,
    aftermath,
    count,
    expiry_line,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.model.prompt import Prompt
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.early_media import EarlyMedia

_RANK = 13
_SLACK = 8


class ImagePresenceChanged(Rule):
    """The first picture of the conversation came, and the messages before it were not found.

    ## Why it costs

    Providers say that whether a prompt holds pictures is part of what identifies its messages, so
    that the first one makes the whole conversation new.

    ## What it rests on

    Recorded bodies: an unchanged prefix without pictures, then one. The read ends where the
    messages begin. One public measurement saw pictures appended like anything else, so that
    the verdict is never more than consistent.

    ## When to ignore

    When it happens once.

    ## References

    The provider's page on prompt caching against a public measurement with eight pictures.
    """

    id = "PFX222"
    name = "image-presence-changed"
    title = "The first picture came and the messages before it were not found"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    rests_on = MappingProxyType({"images": "messages"})
    supersedes = ("lookback-or-message-change",)
    fix = Fix("Send the picture early, or ask about it in a conversation of its own")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Show a picture in the third turn."""
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", [image(), "what is this"])
        return Scene().send(first).send(second, read=7_000).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Show it in the first."""
        first = request([image(), "task"], "answer", "go on")
        second = request([image(), "task"], "answer", "go on", "more", "what is this")
        return Scene().send(first).send(second).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if event.has_bodies and event.change is None and event.timing.state != "over":
                before, now = event.previous.prompt, event.call.prompt
                if before is None or now is None or has_images(before) or not has_images(now):
                    continue
                front = sum(1 for block in now.blocks if block.level != "messages")
                size = size_before(event.call, front)
                if abs(event.read - size) <= max(1_024, event.total // _SLACK):
                    yield _draft(event, size)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return EarlyMedia()


def has_images(prompt: Prompt) -> bool:
    """Whether a prompt holds a picture."""
    return any(block.kind == "image" for block in prompt.blocks)


def _draft(event: Event, front: int) -> Draft:
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The first picture came with this call.",
        evidence="body_diff",
        established=(
            shortfall(event),
            (
                f"The prompt extends the one before unchanged and holds the first picture; tools "
                f"and system are {count(front)} tokens, {count(event.read)} were read."
            ),
            expiry_line(event),
            *reason_lines(event),
            *aftermath(event),
        ),
        to_check=("Whether pictures that are appended later are read in full.",),
        rivals=(SERVER,),
    )
