"""Rule TTL107."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.times import seconds_of
from cacheaudit.diagnose.wording import count
from cacheaudit.diagnose.worth import Swap
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix

_DEFAULT = 300


class KeepAliveWasteful(Rule):
    """Requests that only keep a prefix alive cost more than writing it once would have.

    ## Why it costs

    Each of them reads the whole prefix. Where the conversation goes on before the lifetime ends
    anyway, or never, they bought nothing; where it goes on late, they may together cost more than
    one write.

    ## What it rests on

    Recorded keep-alive requests, what they read, and whether a call came back after the lifetime
    counted from the last real request. The break-even is computed from the prices in force. It is
    said only where the requests cost more than they saved.

    ## When to ignore

    When a fast first answer after a pause is worth the difference.
    """

    id = "TTL107"
    name = "keep-alive-wasteful"
    title = "Keep-alive requests cost more than they saved"
    kind = "note"
    fix = Fix("Stop keeping a prefix alive once its reads have cost as much as one write")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Keep a prefix alive for an hour, and never come back."""
        return _pings(Script().call(0, 0, 60_000), 12).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Stop early, and come back."""
        return _pings(Script().call(0, 0, 60_000), 2).call(800, 60_000, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        if not survey(ctx).has_refreshes:
            return
        lanes: dict[str, list[int]] = {}
        for index, call in enumerate(ctx.session.calls):
            if call.purpose == "keep_alive" and call.usage is not None and call.usage.cache_read:
                lanes.setdefault(call.lane, []).append(index)
        for pings in lanes.values():
            for group in _groups(ctx, pings):
                draft = _draft(ctx, group)
                if draft is not None:
                    yield draft


def _pings(script: Script, number: int) -> Script:
    for n in range(number):
        script.call(270 * (n + 1), 60_000, 0, purpose="keep_alive")
    return script


def _groups(ctx: Context, pings: list[int]) -> Iterator[tuple[int | None, list[int], int | None]]:
    """Yield the real call before, the requests in between, and the real call behind them."""
    lane = ctx.session.calls[pings[0]].lane
    real = [
        index
        for index, call in enumerate(ctx.session.calls)
        if call.lane == lane and call.usage is not None and call.purpose != "keep_alive"
    ]
    waiting = list(pings)
    for before, after in zip([None, *real], [*real, None], strict=True):
        group = [p for p in waiting if after is None or p < after]
        if group:
            yield before, group, after
        waiting = waiting[len(group) :]


def _draft(ctx: Context, group: tuple[int | None, list[int], int | None]) -> Draft | None:
    before, pings, after = group
    calls = ctx.session.calls
    if before is None:
        return None
    usage = calls[before].usage
    ttl = "1h" if usage is not None and usage.write_1h else "5m"
    lifetime = 3_600 if ttl == "1h" else _DEFAULT
    read = {index: _read(ctx, index) for index in pings}
    swaps = [Swap(index, tokens, "read", "") for index, tokens in read.items()]
    start, end = calls[before].at, None if after is None else calls[after].at
    gap = None if start is None or end is None else end - start
    came_late = gap is not None and gap > lifetime
    if after is not None and came_late:
        saved = min(_read(ctx, after), max(read.values()))
        swaps.append(Swap(after, saved, "read", ttl))
        span = seconds_of(gap or 0.0)
        outcome = f"the next call came {span} behind {calls[before].id} and read {count(saved)}"
    elif after is None:
        outcome = "no call came back"
    elif gap is None:
        return None
    else:
        outcome = f"the next call came after {seconds_of(gap)}, within the lifetime anyway"
    return Draft(
        index=pings[-1],
        verdict="proved",
        established=(
            (
                f"{len(pings)} keep-alive requests behind {calls[before].id} read "
                f"{count(sum(read.values()))} tokens; "
                f"{outcome}."
            ),
        ),
        also=tuple(calls[index].id for index in pings[:-1]),
        worth=tuple(swaps),
        must_pay=True,
        pings=(pings[0], ttl),
    )


def _read(ctx: Context, index: int) -> int:
    usage = ctx.session.calls[index].usage
    return 0 if usage is None else usage.cache_read or 0
