"""Rule TTL108."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import count, describe, expiry_line, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix


class KeepAliveMissed(Rule):
    """A request that was to keep the prefix alive did not read it.

    ## Why it costs

    A keep-alive request refreshes only what it reads. With other tools, another system prompt or
    another thinking setting it has another prefix and refreshes nothing; sent too late, it writes
    everything itself.

    ## What it rests on

    A request recorded as keep-alive that read less than the call before it had left in the cache,
    or whose prompt is less than half as large. Proved where bodies show that it is another prompt.

    ## When to ignore

    Never: it costs something and does nothing.
    """

    id = "TTL108"
    name = "keep-alive-missed"
    title = "A keep-alive request did not reach the prefix"
    kind = "note"
    fix = Fix(
        "Repeat the last request byte for byte with an output limit of 0 or 1, before its "
        "lifetime ends"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Send it without tools and history."""
        return (
            Script()
            .call(0, 0, 60_000)
            .call(270, 0, 0, uncached=40, purpose="keep_alive")
            .call(290, 60_000, 900)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Repeat the request as it was."""
        return (
            Script()
            .call(0, 0, 60_000)
            .call(270, 60_000, 0, purpose="keep_alive")
            .call(290, 60_000, 900)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        calls = ctx.session.calls
        for index, before in ctx.asides:
            usage = calls[index].usage
            if calls[index].purpose == "keep_alive" and usage is not None:
                yield Draft(
                    index=index,
                    verdict="proved",
                    established=(
                        (
                            f"{calls[index].id} sent {count(usage.total_input or 0)} tokens and "
                            "read "
                            f"{count(usage.cache_read or 0)}, while {calls[before].id} had a "
                            "prompt of "
                            f"{count(_size(ctx, before))}: it is another prompt and refreshes "
                            "nothing of it."
                        ),
                        *_difference(ctx, index),
                    ),
                    change=ctx.changes.get(index),
                    to_check=(
                        (
                            "Whether it carries the same tools, system prompt, messages and "
                            "parameters."
                        ),
                    ),
                )
        for event in ctx.events:
            if event.call.purpose == "keep_alive":
                yield Draft(
                    index=event.index,
                    verdict="consistent" if event.change is None else "proved",
                    evidence="usage" if event.change is None else "body_diff",
                    established=(
                        shortfall(event),
                        *_difference(ctx, event.index),
                        expiry_line(event),
                    ),
                    change=event.change,
                    to_check=(
                        (
                            "Whether it is sent early enough, counted from the start of the "
                            "real request."
                        ),
                        "Whether it repeats the real request in all but the output limit.",
                    ),
                )


def _difference(ctx: Context, index: int) -> tuple[str, ...]:
    change = ctx.changes.get(index)
    if change is None:
        return ()
    return (describe(change), "It does not share what lies behind that and refreshes none of it.")


def _size(ctx: Context, index: int) -> int:
    usage = ctx.session.calls[index].usage
    return 0 if usage is None else usage.total_input or 0
