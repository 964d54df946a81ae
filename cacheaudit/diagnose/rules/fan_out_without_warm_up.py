"""Rule RTE104."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cacheaudit.diagnose.context import LOSS_TOKENS, Context
from cacheaudit.diagnose.events import Event, Opening
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.fanout import fan_outs, is_alike
from cacheaudit.diagnose.mends import one_first
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import MIXED, count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Evidence, Finding, Fix, Verdict
from cacheaudit.simulate.edit import Edit

_RANK = 8


class FanOutWithoutWarmUp(Rule):
    """Requests began within seconds of each other, and each wrote about the same amount.

    ## Why it costs

    What they share could be read by all but the first, if the others waited until the first
    response begins. Started together, each of them writes it.

    ## What it rests on

    Requests with the same model and the same read, starts within seconds, and writes of nearly the
    same size: first calls of lanes, or calls of one lane that ran side by side. How much of them is
    shared cannot be seen from sizes: the loss given is the smallest of the writes, the most that it
    can be. With recorded bodies it is the common prefix.

    ## When to ignore

    When the answers are needed so fast that waiting for the first one is not worth its price.
    """

    id = "RTE104"
    name = "fan-out-without-warm-up"
    title = "Requests that started together each wrote nearly the same beginning"
    needs = ("usage", "start_times")
    fix = Fix(
        "Mark the end of what they share, start one, and start the others when its response "
        "has begun"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Start three agents at once, each with a task of its own."""
        return (
            Script()
            .call(0, 0, 51_870, duration=20)
            .call(30, 0, 14_500, duration=25, lane="sub-0")
            .call(30, 0, 14_100, duration=25, lane="sub-1")
            .call(30.2, 0, 14_900, duration=25, lane="sub-2")
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Start one, wait for it, start the others."""
        return (
            Script()
            .call(0, 0, 51_870, duration=20)
            .call(30, 0, 14_500, duration=25, lane="sub-0")
            .call(40, 13_000, 1_100, duration=25, lane="sub-1")
            .call(40.2, 13_000, 1_900, duration=25, lane="sub-2")
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for group in fan_outs(ctx.openings):
            yield from _drafts(ctx, group)
        for event in ctx.events:
            if _is_beside(event):
                yield _in_lane(ctx, event)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return one_first(session, finding)


def _is_beside(event: Event) -> bool:
    """Whether a call of a lane wrote about what the one before it was still writing."""
    if not event.timing.overlaps or event.read != event.previous_read:
        return False
    if event.switched is not None or event.total == event.previous_total:
        return False  # what is equal in all figures has a rule of its own
    return is_alike((event.written, event.previous_written))


def _in_lane(ctx: Context, event: Event) -> Draft:
    shared = ctx.shared_tokens(event.previous_index, event.index)
    tokens = event.lost if shared is None else min(event.lost, max(0, shared - event.read))
    is_sure = shared is not None
    return Draft(
        index=event.index,
        claims=tokens,
        rank=_RANK,
        why="Another request of the lane was still being answered and wrote about the same.",
        verdict="proved" if is_sure else "consistent",
        evidence="body_diff" if is_sure else "usage",
        established=(
            (
                f"{event.call.id} and {event.previous.id} ran side by side, both read "
                f"{count(event.read)} tokens, and wrote {count(event.written)} and "
                f"{count(event.previous_written)}; "
                + (
                    f"their bodies share {count(shared)} tokens from the front."
                    if shared is not None
                    else "at most the smaller of the two was written twice."
                )
            ),
        ),
        to_check=(
            "How much of what they wrote is the same: tools, system and first messages.",
            "Whether a marker stands at the end of what they share.",
        ),
        rivals=() if is_sure else (MIXED,),
        also=(event.previous.id,),
    )


def _drafts(ctx: Context, group: list[Opening]) -> Iterator[Draft]:
    leader = group[0]
    least = min(opening.written for opening in group)
    for follower in group[1:]:
        shared = ctx.shared_tokens(leader.index, follower.index)
        tokens = least if shared is None else min(max(0, shared - follower.read), follower.written)
        if tokens <= LOSS_TOKENS:
            continue
        verdict: Verdict = "consistent" if shared is None else "proved"
        evidence: Evidence = "usage" if shared is None else "body_diff"
        bound = (
            f"at most {count(tokens)} of them, the smallest of the writes, were written twice."
            if shared is None
            else f"their bodies share {count(shared)} tokens from the front."
        )
        yield Draft(
            index=follower.index,
            claims=tokens,
            rank=_RANK,
            why="Another lane began at the same moment with about the same size.",
            verdict=verdict,
            evidence=evidence,
            established=(
                (
                    f"{follower.call.id} and {leader.call.id} began within seconds, both read "
                    f"{count(follower.read)} tokens, and "
                    f"wrote {count(follower.written)} and {count(leader.written)}; {bound}"
                ),
            ),
            to_check=(
                "How much of what they wrote is the same: tools and system of the agents.",
                "Whether a marker stands at the end of what they share.",
            ),
            also=(leader.call.id,),
        )
