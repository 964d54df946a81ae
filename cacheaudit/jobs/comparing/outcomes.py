"""The four outcomes over the pairs: figures, intervals, and what may be concluded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from random import Random
from typing import Final

import msgspec

from cacheaudit.jobs.comparing.bootstrap import (
    LEVEL,
    interval_of,
    quantile,
    resampled_sums,
    resamples_for,
)
from cacheaudit.jobs.comparing.gather import Task
from cacheaudit.jobs.comparing.pairs import Pair
from cacheaudit.jobs.comparing.stages import generation_speed, phases
from cacheaudit.model.money import ZERO, plain
from cacheaudit.report.comparison import (
    Conclusion,
    Interval,
    Measure,
    Outcome,
    OutcomeRow,
    Value,
)

FEWEST_PAIRS: Final = 10
_PASSED: Final = "accepted"
_MILLI: Final = 1_000
# Money to this many places goes into the draws as a whole number.
_PLACES: Final = 12


class Settings(msgspec.Struct, frozen=True):
    """How intervals are drawn."""

    seed: int
    resamples: int
    fewest: int = FEWEST_PAIRS


Sums = Sequence[tuple[int, ...]]


def outcomes(pairs: Sequence[Pair], settings: Settings) -> list[OutcomeRow]:
    """Work out pass rate, cost, time and cache use."""
    return [
        _pass_rate(pairs, settings),
        _cost(pairs, settings),
        _time(pairs, settings),
        _cache(pairs, settings),
    ]


def _draw(rows: Sequence[tuple[int, ...]], settings: Settings) -> Sums:
    """Draw anew from the same seed for each outcome, so that one does not depend on another."""
    if len(rows) < settings.fewest:
        return []
    count = resamples_for(len(rows), settings.resamples)
    return resampled_sums(rows, count, Random(settings.seed))  # noqa: S311 - statistics


def _pass_rate(pairs: Sequence[Pair], settings: Settings) -> OutcomeRow:
    rows = [
        (int(p.before.outcome == _PASSED), int(p.after.outcome == _PASSED))
        for p in pairs
        if p.before.outcome is not None and p.after.outcome is not None
    ]
    n = len(rows)
    before, after = _mean([a for a, _ in rows]), _mean([b for _, b in rows])
    bounds = interval_of(_draw(rows, settings), lambda s: (s[1] - s[0]) / n)
    measure = Measure(
        name="pass_rate",
        unit="share",
        before=before,
        after=after,
        change=_minus(after, before),
        interval=_floats(bounds),
        pairs=n,
    )
    return _row("pass_rate", [measure], ("better", "worse"), "the outcome", settings)


def _cost(pairs: Sequence[Pair], settings: Settings) -> OutcomeRow:
    known = [
        (p.before.known_cost, p.after.known_cost, p)
        for p in pairs
        if p.before.known_cost is not None and p.after.known_cost is not None
    ]
    costs = [(a, b) for a, b, _ in known if a is not None and b is not None]
    rows = [(_whole(a), _whole(b)) for a, b in costs]
    sums = _draw(rows, settings)
    n = len(rows)
    before, after = _sum(a for a, _ in costs), _sum(b for _, b in costs)
    bounds = interval_of(sums, lambda s: s[1] - s[0])
    measures = [
        Measure(
            name="cost_per_task",
            unit="money",
            before=_each(before, n),
            after=_each(after, n),
            change=_each(after - before, n),
            relative=_relative(before, after),
            interval=None
            if bounds is None
            else Interval(_money(bounds[0], n), _money(bounds[1], n), LEVEL),
            relative_interval=_floats(interval_of(sums, _ratio_change)),
            pairs=n,
        ),
        _per_accepted([pair for _, _, pair in known], settings),
        _equivalents(pairs),
    ]
    return _row("cost", measures, ("worse", "better"), "the cost", settings)


def _per_accepted(pairs: Sequence[Pair], settings: Settings) -> Measure:
    """What an accepted task cost, failures included."""
    judged = [p for p in pairs if p.before.outcome is not None and p.after.outcome is not None]

    def side(of: Callable[[Pair], Task]) -> Decimal | None:
        passed = sum(of(p).outcome == _PASSED for p in judged)
        return _sum(of(p).cost for p in judged) / passed if passed else None

    before, after = side(lambda p: p.before), side(lambda p: p.after)
    rows = [
        (
            _whole(p.before.cost),
            int(p.before.outcome == _PASSED),
            _whole(p.after.cost),
            int(p.after.outcome == _PASSED),
        )
        for p in judged
    ]
    bounds = interval_of(_draw(rows, settings), _each_change)
    return Measure(
        name="cost_per_accepted_task",
        unit="money",
        before=_text(before),
        after=_text(after),
        change=None if before is None or after is None else _text(after - before),
        relative=None if before is None or after is None else _relative(before, after),
        interval=None
        if bounds is None
        else Interval(_money(bounds[0], 1), _money(bounds[1], 1), LEVEL),
        pairs=len(judged),
    )


def _equivalents(pairs: Sequence[Pair]) -> Measure:
    rows = [
        (a, b)
        for p in pairs
        if (a := p.before.known_equivalents) is not None
        and (b := p.after.known_equivalents) is not None
    ]
    before, after, n = _sum(a for a, _ in rows), _sum(b for _, b in rows), len(rows)
    return Measure(
        name="input_equivalents_per_task",
        unit="equivalents",
        before=_each(before, n),
        after=_each(after, n),
        change=_each(after - before, n),
        relative=_relative(before, after),
        pairs=n,
    )


def _time(pairs: Sequence[Pair], settings: Settings) -> OutcomeRow:
    spans = [
        (a, b)
        for p in pairs
        if (a := p.before.seconds) is not None and (b := p.after.seconds) is not None
    ]
    rows = [(round(a * _MILLI), round(b * _MILLI)) for a, b in spans]
    sums = _draw(rows, settings)
    n = len(rows)
    before, after = _mean([a for a, _ in spans]), _mean([b for _, b in spans])
    bounds = interval_of(sums, lambda s: (s[1] - s[0]) / (_MILLI * n))
    mean = Measure(
        name="task_time_mean",
        unit="seconds",
        before=before,
        after=after,
        change=_minus(after, before),
        relative=None if not before or after is None else after / before - 1,
        interval=_floats(bounds),
        relative_interval=_floats(interval_of(sums, _ratio_change)),
        pairs=n,
    )
    measures = [mean, *_quantiles("task_time", [a for a, _ in spans], [b for _, b in spans], n)]
    measures += _call_quantiles("call_time", pairs, lambda task: task.durations)
    for name, part in (
        ("first_token", "first_response"),
        ("generation", "generation"),
        ("tool_time", "tool"),
    ):
        measures += _call_quantiles(name, pairs, _times_of(part))
    measures.append(generation_speed(pairs))
    return _row("time", measures, ("worse", "better"), "start and end", settings)


def _times_of(part: str) -> Callable[[Task], Sequence[float]]:
    return lambda task: task.times[part]


def _call_quantiles(
    name: str, pairs: Sequence[Pair], of: Callable[[Task], Sequence[float]]
) -> list[Measure]:
    """Over all calls of all pairs."""
    mine = [value for pair in pairs for value in of(pair.before)]
    theirs = [value for pair in pairs for value in of(pair.after)]
    both = sum(bool(of(pair.before) and of(pair.after)) for pair in pairs)
    return _quantiles(name, mine, theirs, both)


def _quantiles(
    name: str, before: Sequence[float], after: Sequence[float], pairs: int
) -> list[Measure]:
    found = []
    for label, share in (("p50", 0.5), ("p95", 0.95)):
        mine, theirs = quantile(before, share), quantile(after, share)
        found.append(
            Measure(
                name=f"{name}_{label}",
                unit="seconds",
                before=mine,
                after=theirs,
                change=_minus(theirs, mine),
                relative=None if not mine or theirs is None else theirs / mine - 1,
                pairs=pairs,
            )
        )
    return found


def _cache(pairs: Sequence[Pair], settings: Settings) -> OutcomeRow:
    rows = [
        (*a, *b)
        for p in pairs
        if (a := p.before.split) is not None and (b := p.after.split) is not None
    ]
    sums = _draw(rows, settings)
    whole = [sum(column) for column in zip(*rows, strict=True)] if rows else [0, 0, 0, 0]
    before = whole[0] / whole[1] if whole[1] else None
    after = whole[2] / whole[3] if whole[3] else None
    bounds = interval_of(sums, _hit_change)
    ratio = Measure(
        name="hit_ratio",
        unit="share",
        before=before,
        after=after,
        change=_minus(after, before),
        interval=_floats(bounds),
        pairs=len(rows),
    )
    measures = [ratio, *(_tokens(pairs, name) for name in ("cache_read", "cache_write"))]
    measures.append(_tokens(pairs, "total_input"))
    measures += phases(pairs)
    return _row(
        "cache_use", measures, ("higher", "lower"), "what was read from the cache", settings
    )


def _tokens(pairs: Sequence[Pair], name: str) -> Measure:
    rows = [
        (a, b)
        for p in pairs
        if (a := p.before.told(name)) is not None and (b := p.after.told(name)) is not None
    ]
    n = len(rows)
    before, after = sum(a for a, _ in rows), sum(b for _, b in rows)
    return Measure(
        name=f"{name}_per_task",
        unit="tokens",
        before=round(before / n) if n else None,
        after=round(after / n) if n else None,
        change=round((after - before) / n) if n else None,
        relative=after / before - 1 if before else None,
        pairs=n,
    )


def _row(
    outcome: Outcome,
    measures: list[Measure],
    words: tuple[Conclusion, Conclusion],
    lacking: str,
    settings: Settings,
) -> OutcomeRow:
    """Conclude from the first measure; ``words`` are for a change up and a change down."""
    first = measures[0]
    conclusion: Conclusion = "not_concluded"
    if not first.pairs:
        reason = f"No pair tells {lacking} on both sides."
    elif first.interval is None:
        told = "1 pair tells" if first.pairs == 1 else f"{first.pairs} pairs tell"
        known = f"{told} {lacking} on both sides"
        reason = f"{known}; it takes {settings.fewest} to conclude."
    else:
        low, high = Decimal(str(first.interval.low)), Decimal(str(first.interval.high))
        if low > 0 or high < 0:
            conclusion = words[0] if low > 0 else words[1]
            reason = "The interval of the change lies on one side of zero."
        else:
            conclusion = "no_difference_shown"
            reason = "The interval of the change holds zero."
    return OutcomeRow(outcome=outcome, conclusion=conclusion, reason=reason, measures=measures)


def _each_change(sums: tuple[int, ...]) -> int | None:
    """Change of the cost of an accepted task; none where a draw has no accepted one."""
    cost, passed, cost_after, passed_after = sums
    return cost_after // passed_after - cost // passed if passed and passed_after else None


def _hit_change(sums: tuple[int, ...]) -> float | None:
    read, sent, read_after, sent_after = sums
    return read_after / sent_after - read / sent if sent and sent_after else None


def _ratio_change(sums: tuple[int, ...]) -> float | None:
    return sums[1] / sums[0] - 1 if sums[0] else None


def _floats(bounds: tuple[float, float] | None) -> Interval | None:
    return None if bounds is None else Interval(bounds[0], bounds[1], LEVEL)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _minus(after: float | None, before: float | None) -> Value:
    return None if after is None or before is None else after - before


def _sum(values: Iterable[Decimal]) -> Decimal:
    return sum(values, ZERO)


def _whole(value: Decimal) -> int:
    return int(value.scaleb(_PLACES).to_integral_value())


def _money(value: int, n: int) -> str:
    return plain((Decimal(value).scaleb(-_PLACES) / n).quantize(Decimal("1e-9")))


def _each(total: Decimal, n: int) -> str | None:
    return None if not n else plain((total / n).quantize(Decimal("1e-9")))


def _text(value: Decimal | None) -> str | None:
    return None if value is None else plain(value.quantize(Decimal("1e-9")))


def _relative(before: Decimal, after: Decimal) -> float | None:
    return float(after / before - 1) if before else None
