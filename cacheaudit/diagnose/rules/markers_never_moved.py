"""Rule BRK205."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.diagnose.steps import Step, steps
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.sliding_markers import SlidingMarkers

_RANK = 8


class MarkersNeverMoved(Rule):
    """The markers stay where they were while the conversation grows behind them.

    ## Why it costs

    What is cached ends at the last marker. The part behind it grows with every turn and is sent
    uncached each time, so that the share that is read falls with the length of the conversation.

    ## What it rests on

    Recorded bodies: the last marker stands on the same content block as in the request before, and
    the conversation behind it was sent before. Proved where the tokens that were stored end there.

    ## When to ignore

    When the conversation ends soon anyway.

    ## References

    dhanji/g3#77; anthropics/claude-code#82739.
    """

    id = "BRK205"
    name = "markers-never-moved"
    title = "The markers stay behind while the conversation grows"
    needs = ("usage", "requests")
    fix = Fix("Move the last marker to the last content block of every request")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Leave the marker on the first message."""
        talk = ("task", "answer", "go on", "more", "next", "done", "last")
        return continued(*(request(*talk[:n], mark=("tools", "system", 0)) for n in (3, 5, 7)))

    @classmethod
    @override
    def good(cls) -> Session:
        """Let it move."""
        talk = ("task", "answer", "go on", "more", "next", "done", "last")
        return continued(*(request(*talk[:n]) for n in (3, 5, 7)))

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for step in steps(ctx):
            if _stays(step):
                yield _draft(step)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return SlidingMarkers()


def _stays(step: Step) -> bool:
    if not step.marks or not step.marks_before:
        return False
    last = step.marks[-1]
    in_messages = step.prompt.blocks[last].level == "messages"
    grew = len(step.prompt.blocks) > len(step.before.blocks)
    return in_messages and grew and last == step.marks_before[-1]


def _draft(step: Step) -> Draft:
    path = step.prompt.blocks[step.marks[-1]].path
    behind = len(step.prompt.blocks) - 1 - step.marks[-1]
    return Draft(
        index=step.index,
        claims=step.sent_again,
        rank=_RANK,
        why="The last marker did not move.",
        verdict="proved" if step.agrees else "consistent",
        evidence="body_diff",
        established=(
            (
                f"{step.call.id}: the last marker still stands on {path}, {behind} content blocks "
                f"stand behind it; {count(step.stored)} tokens were read or written, and "
                f"{count(step.sent_again)} that had been sent before were sent again uncached."
            ),
        ),
    )
