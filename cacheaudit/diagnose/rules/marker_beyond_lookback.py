"""Rule BRK204."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.reach import LOOKBACK, Reach, collapses, markers, position, reach
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
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
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.mark_previous import MarkPrevious

_RANK = 12


class MarkerBeyondLookback(Rule):
    """The entry of the request before lies further back than a lookup goes.

    ## Why it costs

    From each marker the provider looks back over at most 20 positions, the marked one included. A
    turn that adds more - many files, many sequential tool calls - hides the entry that the turn
    before had written, and the conversation is written again.

    ## What it rests on

    Recorded bodies: nothing changed, an earlier request marked a place in the prompt, and no
    lookup of this one gets there. Whether a run of `tool_use`, or of `tool_result`, is one position
    follows the dated facts: since September 2026 on the Claude API, not on Bedrock. Proved where
    exactly what a lookup does find was read.

    ## When to ignore

    When such turns are rare.

    ## References

    The provider's page on prompt caching of September 2026; redpanda-data/ai-sdk-go#205, written
    before runs counted as one.
    """

    id = "BRK204"
    name = "marker-beyond-lookback"
    title = "The cached prefix lies further back than a lookup goes"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("lookback-or-message-change", "provider-side-suspected", "image-presence-changed")
    fix = Fix("Mark the last content block of the request before as well, or add fewer blocks")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Add 24 files as one block each."""
        files = [f"file {number}" for number in range(24)]
        return continued(
            request("task", "answer", "go on"), request("task", "answer", "go on", "more", files)
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Add them as one block."""
        files = "\n".join(f"file {number}" for number in range(24))
        return continued(
            request("task", "answer", "go on"), request("task", "answer", "go on", "more", files)
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if not event.explicit or not event.has_bodies or event.change is not None:
                continue
            if event.timing.state == "over" and not event.timing.contradicted:
                continue
            near = reach(ctx, event.index, explicit=True)
            far = reach(ctx, event.index, explicit=True, unlimited=True)
            if near is None or far is None or not near.marked:
                continue
            hidden = far.tokens - max(near.tokens, event.read)
            if far.blocks > near.blocks and hidden > near.above:
                yield _draft(ctx, event, near, far)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return MarkPrevious()


def _draft(ctx: Context, event: Event, near: Reach, far: Reach) -> Draft:
    source = ctx.session.calls[far.source].id
    counted = "runs of tool calls counted as one" if collapses(event.call) else "each block counted"
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="No lookup of the request gets to what earlier requests had marked.",
        verdict="proved" if near.agrees(event.read) else "consistent",
        evidence="body_diff",
        established=(
            shortfall(event),
            (
                f"{source} had marked {count(far.tokens)} tokens, which stand in this prompt "
                f"unchanged{_place(event, far)}; from its markers a lookup over {LOOKBACK} "
                f"positions ({counted}) finds "
                f"{count(near.tokens)}, and {count(event.read)} were read."
            ),
            expiry_line(event),
            *aftermath(event),
            *reason_lines(event),
        ),
        rivals=() if near.agrees(event.read) else (SERVER,),
    )


def _place(event: Event, far: Reach) -> str:
    prompt = event.call.prompt
    marks = [] if prompt is None else markers(prompt)
    if prompt is None or not marks:
        return ""
    where = position(prompt.blocks, marks[-1], far.blocks - 1, collapse=collapses(event.call))
    return f" and end at position {where} of the lookup"
