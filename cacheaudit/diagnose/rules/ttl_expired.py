"""Rule TTL101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.times import seconds_of
from cacheaudit.diagnose.wording import count, expiry_line, gap, reason_lines, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Evidence, Fix, Rival, Verdict

_RANK = 10
_RIVAL_RANK = 90
_HOUR = 3_600


class TtlExpired(Rule):
    """The cached prefix had not been touched for longer than it lives.

    ## Why it costs

    Five minutes (or an hour, where asked for) after the *start* of the request that last wrote or
    read it, cached content is gone, and the whole prompt is written again. The clock runs while the
    response is generated: a request of two and a half minutes leaves two and a half of five.

    ## What it rests on

    Request starts and the lifetime of earlier writes. Where only an interval is known for the
    start, the whole interval has to lie beyond the lifetime; where it straddles, expiry is only a
    rival cause. Proved where the bodies are the same or the provider found no divergence. A lane
    in which everything was still read after a longer gap does not count.

    ## When to ignore

    When the pauses are rare. A one-hour lifetime costs 0.75 ordinary tokens more for every token
    written, and saves about 1.15 for every token lost to pauses between five minutes and an hour:
    ask for it only where the second sum is larger.
    """

    id = "TTL101"
    name = "ttl-expired"
    title = "The cached prefix outlived its lifetime"
    fix = Fix("Refresh the prefix before it expires, or ask for a longer lifetime where that pays")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Pause for longer than five minutes, most of it spent in the request itself."""
        return (
            Script()
            .call(0, 0, 36_150, duration=150)
            .call(335, 0, 37_650)
            .call(365, 37_650, 1_500)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep the prefix alive with a small request in between."""
        return (
            Script()
            .call(0, 0, 36_150, duration=150)
            .call(270, 36_150, 0, purpose="keep_alive")
            .call(335, 36_150, 1_500)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            state = event.timing.state
            if state == "under" or (event.read and not event.is_floor):
                continue
            if state == "over" and not event.timing.contradicted:
                yield _expired(event)
            else:
                yield Draft(
                    index=event.index,
                    rank=_RIVAL_RANK,
                    why="A hit after a longer gap speaks against it, but does not exclude it."
                    if event.timing.contradicted
                    else expiry_line(event),
                )


def _expired(event: Event) -> Draft:
    verdict: Verdict = "consistent"
    evidence: Evidence = "usage"
    if event.timing.ttl_assumed:
        pass
    elif event.reason == "none":
        verdict, evidence = "proved", "reported"
    elif event.has_bodies and event.change is None:
        verdict, evidence = "proved", "body_diff"
    lines = [shortfall(event), expiry_line(event)]
    timing = event.timing
    if timing.eaten_by_request and timing.idle is not None and timing.ttl is not None:
        span = gap(timing)
        lines.append(
            f"Only {seconds_of(timing.idle)} of the {span} lie between the end of the previous "
            f"response and this request: that long request used up part of the lifetime, which "
            "counts from its start."
        )
    if event.read:
        lines.append(
            f"The first {count(event.read)} tokens were still readable: kept warm by other "
            "requests, or written for longer."
        )
    if evidence == "body_diff":
        lines.append("The recorded bodies show an unchanged prefix.")
    if timing.high is not None and (timing.ttl or 0) < timing.high <= _HOUR:
        lines.append("A lifetime of one hour would have covered this pause.")
    checks = [] if verdict == "proved" else ["Whether the prefix was the same as before."]
    if timing.ttl_assumed:
        checks.append("Which lifetime was asked for: the record does not say.")
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The previous request began longer ago than the lifetime.",
        verdict=verdict,
        evidence=evidence,
        established=(*lines, *reason_lines(event)),
        to_check=tuple(checks),
        rivals=()
        if verdict == "proved"
        else (
            Rival(
                "prefix-lost-inside-ttl",
                "A change of tools, system or model in the same pause would look the same.",
            ),
        ),
    )
