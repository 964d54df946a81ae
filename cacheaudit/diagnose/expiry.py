"""The draft of a call that surely came after its prefix's lifetime."""

from __future__ import annotations

from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.rule import Draft
from cacheaudit.diagnose.times import seconds_of
from cacheaudit.diagnose.wording import count, expiry_line, gap, reason_lines, shortfall
from cacheaudit.model.finding import Evidence, Rival, Verdict

RANK = 10
_HOUR = 3_600


def is_expired(event: Event) -> bool:
    """Whether the whole interval lies beyond the lifetime and no longer pause was survived."""
    timing = event.timing
    is_front = not event.read or event.is_floor
    return is_front and timing.state == "over" and not timing.contradicted


def expired(event: Event) -> Draft:
    """Say what shows that the lifetime had passed."""
    verdict: Verdict = "consistent"
    evidence: Evidence = "usage"
    timing = event.timing
    if timing.ttl_assumed:
        pass
    elif event.reason == "none":
        verdict, evidence = "proved", "reported"
    elif event.has_bodies and event.change is None:
        verdict, evidence = "proved", "body_diff"
    lines = [shortfall(event), expiry_line(event)]
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
        rank=RANK,
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
