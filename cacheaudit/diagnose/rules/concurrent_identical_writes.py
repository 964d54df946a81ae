"""Rule RTE101."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cacheaudit.diagnose.context import LOSS_TOKENS, Context
from cacheaudit.diagnose.events import Event, Opening
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import one_first
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.times import overlap
from cacheaudit.diagnose.wording import count, written_by
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Evidence, Finding, Fix, Verdict
from cacheaudit.simulate.edit import Edit

_RANK = 7


class ConcurrentIdenticalWrites(Rule):
    """Several requests started together, and each wrote the same content.

    ## Why it costs

    An entry can be read once the response that writes it has begun. Requests that start at the same
    moment cannot see each other's writes, so that each pays the write price for what they share.

    ## What it rests on

    Equal reads, equal writes and overlapping starts. How much of the written content is really the
    same cannot be seen from sizes: the loss given is the most that it can be. With recorded bodies
    it is the common prefix.

    ## When to ignore

    When the answers are needed so fast that waiting for the first one is not worth its price.
    """

    id = "RTE101"
    name = "concurrent-identical-writes"
    title = "Requests that started together each wrote the same content"
    needs = ("usage", "start_times")
    fix = Fix(
        "Put a marker at the end of what they share, send one request, and send the others when "
        "its response has begun"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Start three subagents in the same second."""
        script = Script().call(0, 0, 51_870, duration=20)
        for number in range(3):
            script.call(30, 51_870, 30_500, duration=25, lane=f"sub-{number}")
        return script.session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Send one, wait, send the others."""
        return (
            Script()
            .call(0, 0, 51_870, duration=20)
            .call(30, 51_870, 30_500, duration=25, lane="sub-0")
            .call(40, 82_170, 200, duration=25, lane="sub-1")
            .call(40, 82_170, 200, duration=25, lane="sub-2")
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if _is_twin(event):
                shared = ctx.shared_tokens(event.previous_index, event.index)
                if shared is not None and shared < event.read + event.lost:
                    shared = None
                yield _draft(
                    event.index, event.lost, event.call.id, event.read, written_by(event.call),
                    event.previous.id, shared,
                )  # fmt: skip
        yield from _across_lanes(ctx)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return one_first(session, finding)


def _is_twin(event: Event) -> bool:
    return (
        event.timing.overlaps
        and event.read == event.previous_read
        and event.written == event.previous_written
        and event.total == event.previous_total
        and event.call.model == event.previous.model
    )


def _across_lanes(ctx: Context) -> Iterator[Draft]:
    groups: dict[tuple[str | None, int, int], list[Opening]] = {}
    for opening in ctx.openings:
        if opening.written > LOSS_TOKENS:
            key = (opening.call.model, opening.read, opening.written)
            groups.setdefault(key, []).append(opening)
    for members in groups.values():
        leader = members[0]
        for follower in members[1:]:
            if not overlap(leader.call, follower.call):
                leader = follower
                continue
            shared = ctx.shared_tokens(leader.index, follower.index)
            tokens = follower.written if shared is None else max(0, shared - follower.read)
            if tokens > LOSS_TOKENS:
                yield _draft(
                    follower.index, tokens, follower.call.id, follower.read,
                    count(follower.written),
                    leader.call.id, shared,
                )  # fmt: skip


def _draft(
    index: int,
    tokens: int,
    call: str,
    read: int,
    written: str | None,
    other: str,
    shared: int | None,
) -> Draft:
    verdict: Verdict = "consistent"
    evidence: Evidence = "usage"
    wrote = f" and both wrote {written}" if written else "; what they wrote is not recorded"
    lines = [f"{call} and {other} began together, both read {count(read)} tokens{wrote}."]
    if shared is None:
        twice = "of the tokens written were written twice" if written else "were sent twice"
        lines.append(f"At most {count(tokens)} {twice}.")
        checks: tuple[str, ...] = (
            "How much of what they wrote is the same: compare the bodies.",
            "Whether a marker stands at the end of what they share.",
        )
    else:
        verdict, evidence = "proved", "body_diff"
        lines.append(f"Their bodies share {count(shared)} tokens from the front.")
        checks = ("Whether a marker stands at the end of what they share.",)
    return Draft(
        index=index,
        claims=tokens,
        rank=_RANK,
        why="An equal request began at the same moment.",
        verdict=verdict,
        evidence=evidence,
        established=tuple(lines),
        to_check=checks,
        also=(other,),
    )
