"""Rule BRK203."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.reach import markers, size_before
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.diagnose.steps import Step, steps
from cacheaudit.diagnose.wording import (
    aftermath,
    client_check,
    client_line,
    count,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Verdict
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.sliding_markers import SlidingMarkers

_RANK = 8
_SHARE = 8


class LastMessageUnmarked(Rule):
    """Tools and system are marked, the conversation is not.

    ## Why it costs

    The constant front is read every time, so that the cache seems to work; the conversation is paid
    in full with every turn, and it is what grows.

    ## What it rests on

    Recorded bodies: no marker stands in the messages. Proved where the tokens that were stored end
    at the last marker. Where the usage shows more than the markers allow, the recorded body is not
    the one that was sent, and the verdict says so.

    ## When to ignore

    When each request is a question of its own behind a fixed front.

    ## References

    anthropics/claude-code#34629; browser-use/browser-use#5848.
    """

    id = "BRK203"
    name = "last-message-unmarked"
    title = "No marker stands in the conversation, so that only the front is cached"
    needs = ("usage", "requests")
    supersedes = ("read-floor", "provider-side-suspected", "lookback-or-message-change")
    fix = Fix(
        "Mark the last content block of every request",
        patch='"cache_control": {"type": "ephemeral"}',
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Mark tools and system only."""
        talk = ("task", "answer", "go on", "more", "next", "done", "last")
        return continued(*(request(*talk[:n], mark=("tools", "system")) for n in (3, 5, 7)))

    @classmethod
    @override
    def good(cls) -> Session:
        """Mark the newest message too."""
        talk = ("task", "answer", "go on", "more", "next", "done", "last")
        return continued(*(request(*talk[:n]) for n in (3, 5, 7)))

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        lost = {event.index for event in ctx.events}
        for step in steps(ctx):
            if step.index not in lost and _is_front_only(step):
                yield _uncached(step)
        for event in ctx.events:
            if event.explicit and event.has_bodies and event.change is None:
                front = _front_marked(event)
                if front is not None:
                    yield _lost(event, front)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return SlidingMarkers()


def _is_front_only(step: Step) -> bool:
    return bool(step.marks) and step.prompt.blocks[step.marks[-1]].level != "messages"


def _uncached(step: Step) -> Draft:
    return Draft(
        index=step.index,
        claims=step.sent_again,
        rank=_RANK,
        why="No marker stands in the messages.",
        verdict="proved" if step.agrees else "consistent",
        evidence="body_diff",
        established=(
            (
                f"{step.call.id}: the last marker stands at {count(step.marked_tokens)} tokens, in "
                f"front of the messages; {count(step.stored)} were read or written, and "
                f"{count(step.sent_again)} of the conversation were sent again uncached."
            ),
        ),
    )


def _front_marked(event: Event) -> int | None:
    """Tokens up to the last marker, where it stands in front of the messages."""
    prompt = event.call.prompt
    if prompt is None:
        return None
    marks = markers(prompt)
    if not marks or prompt.blocks[marks[-1]].level == "messages":
        return None
    return size_before(event.call, marks[-1] + 1)


def _lost(event: Event, front: int) -> Draft:
    slack = max(1_024, event.total // _SHARE)
    lines: list[str] = []
    verdict: Verdict = "proved" if abs(event.read - front) <= slack else "consistent"
    if event.written > slack and event.read + event.written > front + slack:
        verdict = "consistent"
        lines.append(
            f"The usage disagrees with the body: {count(event.written)} tokens were written, which "
            "these markers do not allow. Markers may have been changed on the way."
        )
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="No marker stands in the messages.",
        verdict=verdict,
        evidence="body_diff",
        established=(
            shortfall(event),
            (
                f"The last marker stands at {count(front)} tokens, in front of the messages: a "
                "lookup finds nothing behind it, though the bodies are the same."
            ),
            *lines,
            *client_line(event),
            *reason_lines(event),
            *aftermath(event),
        ),
        to_check=client_check(event),
    )
