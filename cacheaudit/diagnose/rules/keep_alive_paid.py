"""Rule TTL109."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.times import seconds_of
from cacheaudit.diagnose.wording import count
from cacheaudit.diagnose.worth import Stage
from cacheaudit.model.call import Session

_LIFETIMES = {"5m": 300, "1h": 3_600}


class KeepAlivePaid(Rule):
    """Requests that kept a prefix alive through a pause, and what was read behind it.

    ## Why it matters

    This is what keep-alive is for: the call behind the pause reads what it would have had to write
    again. What the requests cost stands beside it, so that the difference can be seen.

    ## What it rests on

    Recorded keep-alive requests, a call that came back after the lifetime counted from the last
    real request, and what that call read. What would have been written without them is taken to
    be what both read.

    ## When to look closer

    When many such requests stand before one pause: a longer lifetime may be cheaper.
    """

    id = "TTL109"
    name = "keep-alive-paid"
    title = "Keep-alive requests carried a prefix over a pause"
    kind = "note"
    needs = ("usage", "start_times")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Keep a prefix alive while a tool runs for six minutes, and read it behind."""
        script = Script().call(0, 0, 60_000).call(270, 60_000, 0, purpose="keep_alive")
        return script.call(360, 60_000, 900).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Come back in time."""
        return Script().call(0, 0, 60_000).call(200, 60_000, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        if survey(ctx).has_refreshes:
            for lane in ctx.session.lanes():
                yield from _lane(ctx, lane)


def _lane(ctx: Context, lane: str) -> Iterator[Draft]:
    """Walk a lane; what kept a prefix alive is judged when a real call comes behind it."""
    before, pings = -1, list[int]()
    for index, call in enumerate(ctx.session.calls):
        if call.lane != lane or call.usage is None:
            continue
        if call.purpose == "keep_alive":
            if call.usage.cache_read:
                pings.append(index)
            continue
        draft = _draft(ctx, before, pings, index) if before >= 0 and pings else None
        if draft is not None:
            yield draft
        before, pings = index, []


def _draft(ctx: Context, before: int, pings: list[int], after: int) -> Draft | None:
    calls = ctx.session.calls
    start, end = calls[before].at, calls[after].at
    usage = calls[before].usage
    lifetime = _LIFETIMES["1h" if usage is not None and usage.write_1h else "5m"]
    if start is None or end is None or end - start <= lifetime:
        return None
    kept = min(_read(ctx, after), max(_read(ctx, index) for index in pings))
    if not kept:
        return None
    number = f"{len(pings)} keep-alive request{'' if len(pings) == 1 else 's'}"
    read = count(sum(_read(ctx, index) for index in pings))
    said = (
        f"{number} behind {calls[before].id} read {read} tokens; the next call came "
        f"{seconds_of(end - start)} behind it and read {count(kept)} that would have been written "
        "again."
    )
    return Draft(
        index=after,
        verdict="proved",
        established=(said,),
        also=tuple(calls[index].id for index in pings),
        stages=(
            Stage("Keep-alive requests", tuple(pings)),
            Stage(f"The call behind the pause ({calls[after].id})", (after,)),
        ),
    )


def _read(ctx: Context, index: int) -> int:
    usage = ctx.session.calls[index].usage
    return 0 if usage is None else usage.cache_read or 0
