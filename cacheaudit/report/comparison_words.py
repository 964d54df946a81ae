"""Words and figures of a comparison, the same in every rendering."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from cacheaudit.report import format as fmt
from cacheaudit.report.comparison import CompareResult, Interval, Measure, OutcomeRow, Value

OUTCOMES = {
    "pass_rate": "Tasks accepted",
    "cost": "Cost",
    "time": "Time",
    "cache_use": "Cache use",
}
MEASURES = {
    "pass_rate": "accepted tasks",
    "cost_per_task": "cost of a task",
    "cost_per_accepted_task": "cost per accepted task",
    "input_equivalents_per_task": "input of a task, weighted",
    "task_time_mean": "task, mean",
    "task_time_p50": "task, typical (p50)",
    "task_time_p95": "task, slow (p95)",
    "call_time_p50": "call, typical (p50)",
    "call_time_p95": "call, slow (p95)",
    "first_token_p50": "first token, typical (p50)",
    "first_token_p95": "first token, slow (p95)",
    "generation_p50": "generation, typical (p50)",
    "generation_p95": "generation, slow (p95)",
    "tool_time_p50": "tools, typical (p50)",
    "tool_time_p95": "tools, slow (p95)",
    "generation_speed": "output tokens a second",
    "hit_ratio": "input read from the cache",
    "hit_ratio_first": "… at the first use of a lane",
    "hit_ratio_continuous": "… while going on",
    "hit_ratio_after_pause": "… after more than five minutes",
    "cache_read_per_task": "tokens read, a task",
    "cache_write_per_task": "tokens written, a task",
    "total_input_per_task": "input tokens, a task",
}
CONCLUSIONS = {
    "better": "better",
    "worse": "worse",
    "higher": "higher",
    "lower": "lower",
    "no_difference_shown": "no difference shown",
    "not_concluded": "not concluded",
}
STATES = {
    "measured": "measured",
    "estimated": "estimated",
    "not_measurable": "not measurable here",
    "same": "same",
    "differs": "differs",
    "not_recorded": "not recorded",
}
HEADS = ("", "Before", "After", "Change", "95 % interval")


def headline(result: CompareResult) -> str:
    """Say in one sentence what may be concluded."""
    pairs = result.pairing.pairs
    over = f"over {fmt.plural(pairs, 'paired task')}"
    if pairs < result.pairing.needed:
        return f"Nothing is concluded {over}: it takes {result.pairing.needed}."
    said = "; ".join(
        f"{OUTCOMES[row.outcome].lower()}: {CONCLUSIONS[row.conclusion]}" for row in result.outcomes
    )
    return f"{said[:1].upper()}{said[1:]}; {over}."


def paired_by(result: CompareResult) -> str:
    """Say how tasks were put side by side."""
    words = {"task": "by task", "session": "by session name", "order": "by order of time"}
    return f"paired {words.get(result.pairing.by, result.pairing.by)}"


def cells(measure: Measure, currency: str) -> tuple[str, str, str, str, str]:
    """Write one measure: name, before, after, change, interval."""
    change = figure(measure, measure.change, currency, signed=True)
    if measure.relative is not None and measure.unit != "share":
        change += f" ({signed_percent(measure.relative)})"
    return (
        MEASURES.get(measure.name, measure.name),
        figure(measure, measure.before, currency),
        figure(measure, measure.after, currency),
        change if measure.change is not None else fmt.DASH,
        _interval(measure, currency),
    )


def _interval(measure: Measure, currency: str) -> str:
    if measure.interval is None:
        return ""
    return " … ".join(
        figure(measure, value, currency, signed=True)
        for value in (measure.interval.low, measure.interval.high)
    )


def figure(measure: Measure, value: Value, currency: str, *, signed: bool = False) -> str:
    """Write a value in the measure's unit."""
    if value is None:
        return fmt.DASH
    number = Decimal(str(value))
    sign = ("+" if number > 0 else "−" if number < 0 else "±") if signed else ""  # noqa: RUF001
    number = abs(number) if signed else number
    if measure.unit == "share":
        unit = "points" if signed else "%"
        return f"{sign}{number * 100:.1f} {unit}"
    if measure.unit == "money":
        places = fmt.places_for(
            [str(v) for v in (measure.before, measure.after) if v is not None] or [str(value)]
        )
        return sign + fmt.money(format(number, "f"), currency, places)
    if measure.unit == "seconds":
        return sign + seconds(float(number))
    return f"{sign}{number:,.1f}" if measure.unit == "tokens_per_second" else f"{sign}{number:,.0f}"


def seconds(value: float) -> str:
    """Write a span of time."""
    if value < 60:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    minutes, left = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {left:02} s"


def signed_percent(value: float) -> str:
    """Write a relative change."""
    sign = "+" if value > 0 else "−" if value < 0 else "±"  # noqa: RUF001
    return f"{sign}{abs(value) * 100:.1f} %"


def known_measures(row: OutcomeRow) -> Iterator[Measure]:
    """Yield the measures that have a figure; the first always."""
    for number, measure in enumerate(row.measures):
        if number == 0 or measure.pairs:
            yield measure


def relative_interval(row: OutcomeRow) -> tuple[float, float, float] | None:
    """Return relative change with its bounds, for drawing; points for shares."""
    first = row.measures[0]
    bounds: Interval | None = first.interval if first.unit == "share" else first.relative_interval
    value = first.change if first.unit == "share" else first.relative
    if bounds is None or value is None:
        return None
    return float(value), float(bounds.low), float(bounds.high)


def task_cells(result: CompareResult, limit: int) -> Iterator[tuple[str, ...]]:
    """Write pairs as cells: task, outcome, cost, time and hit ratio of both sides."""
    for row in result.tasks[:limit]:
        a, b = row.before, row.after
        places = fmt.places_for(c for c in (a.cost, b.cost) if c is not None)
        yield (
            fmt.printable(row.task),
            f"{a.outcome or fmt.DASH} → {b.outcome or fmt.DASH}",
            " → ".join(fmt.money(c, result.currency, places, fmt.DASH) for c in (a.cost, b.cost)),
            " → ".join(fmt.DASH if s is None else seconds(s) for s in (a.seconds, b.seconds)),
            " → ".join(fmt.ratio(r, fmt.DASH) for r in (a.hit_ratio, b.hit_ratio)),
        )


COVERAGE_TITLE = "Eight outcomes and seven groups of factors"
COVERAGE_HEADS = ("", "Here", "Before", "After", "How")


def coverage_cells(result: CompareResult) -> Iterator[tuple[str, ...]]:
    """Write the eight outcomes and the seven groups of factors as one table."""
    for row in result.coverage:
        text = row.text
        if row.same is not None:
            text = f"{'same on both sides' if row.same else 'differs'}; {text}"
        yield (
            row.name,
            STATES[row.state],
            fmt.printable(row.before) or fmt.DASH,
            fmt.printable(row.after) or fmt.DASH,
            text,
        )


TASK_HEADS = ("Task", "Outcome", "Cost", "Time", "Hit ratio")


def method(result: CompareResult) -> str:
    """Say how intervals were made."""
    boot = result.bootstrap
    return (
        f"Intervals: {boot.method} bootstrap over pairs, {boot.resamples:,} resamples, seed"
        f" {boot.seed}, {boot.level:.0%} each; with four outcomes about one in five such"
        " comparisons of equal sides shows some difference. Cost and time are means over pairs, p50"
        " and p95 over all tasks or calls of the pairs."
    )
