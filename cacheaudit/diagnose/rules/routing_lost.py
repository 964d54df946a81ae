"""Rule RTE106."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event, Run
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import expiry_line, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

_RANK = 23
_AT_LEAST = 3
# Automatic caches promise five minutes at least.
_SOON = 300


class RoutingLost(Rule):
    """Several calls in a row of a growing conversation read nothing from an automatic cache.

    ## Why it costs

    Automatic caches are kept on single machines. Without a key or a session id that ties a
    conversation to one of them, requests are spread over many, and each meets a cold cache; tied to
    one, nearly everything is read.

    ## What it rests on

    Three calls or more in a row that read nothing although the prompt grew out of the one before
    within minutes. That leaves a beginning that changes each time as a rival: with bodies it would
    show.

    ## When to ignore

    When the prompts share no beginning.
    """

    id = "RTE106"
    name = "routing-lost"
    title = "An automatic cache was missed call after call"
    fix = Fix(
        "Give each conversation a key or session id of its own, and send it with every request"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask without a key, then with one."""
        return (
            Script(model="gpt-5.1", provider="openai", ttl=None)
            .call(0, 0, None, uncached=20_000)
            .call(20, 0, None, uncached=21_000)
            .call(40, 0, None, uncached=22_000)
            .call(60, 0, None, uncached=23_000)
            .call(80, 22_912, None, uncached=1_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask with one all along."""
        return (
            Script(model="gpt-5.1", provider="openai", ttl=None)
            .call(0, 0, None, uncached=20_000)
            .call(20, 19_968, None, uncached=1_000)
            .call(40, 20_864, None, uncached=1_100)
            .call(60, 21_888, None, uncached=1_100)
            .call(80, 22_912, None, uncached=1_000)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for run in ctx.runs:
            if run.read or len(run.events) < _AT_LEAST:
                continue
            for event in run.events:
                if not event.explicit and not event.has_bodies and _is_soon(event):
                    yield _draft(event, run)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _is_soon(event: Event) -> bool:
    high = event.timing.high
    return event.growth >= 0 and event.switched is None and (high is None or high <= _SOON)


def _draft(event: Event, run: Run) -> Draft:
    lines = [
        shortfall(event),
        f"{len(run.events)} calls in a row read nothing while the prompt grew.",
        expiry_line(event),
    ]
    if run.healed:
        lines.append("The call behind them read in full: the beginning had not changed for good.")
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="Several calls in a row read nothing.",
        verdict="consistent" if run.healed else "unknown",
        established=tuple(lines),
        to_check=(
            "Whether the requests carry a cache key or session id, and always the same one.",
            "Whether the beginning of the prompt differs from call to call.",
        ),
        rivals=(
            Rival("system-changed", "A beginning that differs each time reads nothing either."),
            Rival("provider-side-suspected", "Automatic caches promise nothing."),
        ),
    )
