"""Rule BRK102."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.reach import MANY_NEW_TOKENS
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import (
    IMAGES,
    PARAMETER,
    SERVER,
    SYSTEM,
    aftermath,
    count,
    expiry_line,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.model.prompt import ContentBlock
from cacheaudit.simulate.edit import Edit

_RANK_BODIES = 13
_RANK_USAGE = 22
# The marked block is the first of these positions, so that 20 new ones hide the older entry.
LOOKBACK = 20
_RUNS = ("tool_use", "tool_result")


class LookbackOrMessageChange(Rule):
    """Much was appended at once, and the messages before it were not found.

    ## Why it costs

    The provider looks back over at most 20 positions, the marked one included, for an older
    entry. A turn that adds so many - many files, many sequential tool calls - hides the
    entry of the turn before, and the whole conversation is written again.

    ## What it rests on

    From usage alone: the hit ends before the conversation begins, and many new tokens were added.
    That does not tell a lookback miss from a changed message or parameter, so it is only a thing to
    check. With recorded bodies the new positions are counted (a run of `tool_use`, or of
    `tool_result`, counts as one); an unchanged prefix with 20 of them or more is named.

    ## When to ignore

    When such turns are rare.
    """

    id = "BRK102"
    name = "lookback-or-message-change"
    title = "The messages were not found behind a large addition"
    fix = Fix(
        "Join what is added into fewer content blocks, or keep a marker on the last block of the "
        "request before"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Add 24 files as one block each."""
        return Script().call(0, 0, 42_150).call(25, 7_350, 44_520).call(55, 51_870, 900).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Add them as one block."""
        return Script().call(0, 0, 42_150).call(25, 42_150, 9_720).call(55, 51_870, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if event.timing.state == "over" and not event.timing.contradicted:
                continue
            if event.has_bodies:
                added = new_positions(event)
                if event.change is None and added is not None and added >= LOOKBACK:
                    yield _counted(event, added)
            elif event.is_floor and event.explicit and event.growth >= MANY_NEW_TOKENS:
                yield _suspected(event)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def new_positions(event: Event) -> int | None:
    """Positions from the end of the previous prompt to the first marker behind it, or to the end.

    Runs of parallel calls count once, except where the surface documents single blocks.
    """
    before, now = event.previous.prompt, event.call.prompt
    if before is None or now is None or not before.blocks:
        return None
    start = len(before.blocks)
    marked = (n for n, block in enumerate(now.blocks) if block.marker is not None)
    end = next((n + 1 for n in marked if n >= start - 1), len(now.blocks))
    is_collapsed = event.call.surface != "bedrock"
    return _positions(now.blocks[start:end], is_collapsed)


def _positions(blocks: tuple[ContentBlock, ...], is_collapsed: bool) -> int:
    total = 0
    last: ContentBlock | None = None
    for block in blocks:
        continues = (
            is_collapsed
            and last is not None
            and block.kind in _RUNS
            and (block.kind, block.message) == (last.kind, last.message)
        )
        total += 0 if continues else 1
        last = block
    return total


def _counted(event: Event, added: int) -> Draft:
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK_BODIES,
        why=f"{added} positions were added at once.",
        verdict="consistent",
        evidence="body_diff",
        title=f"{added} new positions hide the entry of the request before",
        established=(
            shortfall(event),
            (
                f"The previous prompt is an unchanged prefix of this one, {added} positions "
                f"follow, and a marker looks back over {LOOKBACK}."
            ),
            expiry_line(event),
            *aftermath(event),
            *reason_lines(event),
        ),
        to_check=("Where the markers stood: one on an earlier block would have been enough.",),
        rivals=(SERVER,),
    )


def _suspected(event: Event) -> Draft:
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK_USAGE,
        why="Many tokens were added at once.",
        verdict="unknown",
        established=(
            shortfall(event),
            (
                f"{count(event.read)} tokens are less than the smallest prompt of the lane "
                f"({count(event.smallest)}): the hit ends before its messages do."
            ),
            f"{count(event.growth)} tokens are new.",
            expiry_line(event),
            *aftermath(event),
            *reason_lines(event),
        ),
        to_check=(
            f"Whether {LOOKBACK} content blocks or more were added since the last marker.",
            "Whether an earlier message or a parameter of the message part changed.",
        ),
        rivals=(
            PARAMETER,
            IMAGES,
            SYSTEM,
            Rival("messages-level-invalidation", "Any change of the message part looks the same."),
            SERVER,
        ),
    )
