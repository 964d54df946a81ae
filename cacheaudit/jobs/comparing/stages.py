"""Where gains and losses arise: first use, going on, coming back; and how fast text is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from cacheaudit.jobs.comparing.gather import Task
from cacheaudit.jobs.comparing.pairs import Pair
from cacheaudit.report.comparison import Measure

PHASES: Final = ("first", "continuous", "after_pause")


def phases(pairs: Sequence[Pair]) -> Iterator[Measure]:
    """Yield the share of the input that was read, phase by phase, over pairs that know it."""
    for phase in PHASES:
        both = [
            (p.before.phases[phase], p.after.phases[phase])
            for p in pairs
            if phase in p.before.phases and phase in p.after.phases
        ]
        before = _ratio([a for a, _ in both])
        after = _ratio([b for _, b in both])
        yield Measure(
            name=f"hit_ratio_{phase}",
            unit="share",
            before=before,
            after=after,
            change=None if before is None or after is None else after - before,
            pairs=len(both),
        )


def generation_speed(pairs: Sequence[Pair]) -> Measure:
    """Return the output tokens a second between first token and end, over streamed calls."""
    both = [p for p in pairs if p.before.generated[0] and p.after.generated[0]]
    before = _speed(both, lambda pair: pair.before)
    after = _speed(both, lambda pair: pair.after)
    return Measure(
        name="generation_speed",
        unit="tokens_per_second",
        before=before,
        after=after,
        change=None if before is None or after is None else after - before,
        relative=None if not before or after is None else after / before - 1,
        pairs=len(both),
    )


def _ratio(parts: Sequence[tuple[int, int]]) -> float | None:
    sent = sum(whole for _, whole in parts)
    return sum(read for read, _ in parts) / sent if sent else None


def _speed(pairs: Sequence[Pair], of: Callable[[Pair], Task]) -> float | None:
    seconds = sum(of(pair).generated[1] for pair in pairs)
    return sum(of(pair).generated[0] for pair in pairs) / seconds if seconds else None
