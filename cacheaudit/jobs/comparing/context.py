"""What stands between figures and conclusions: warnings, groups of factors, what is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from cacheaudit.jobs.comparing.gather import Side, Task
from cacheaudit.jobs.comparing.pairs import Pairs
from cacheaudit.report.comparison import CoverageRow, FactorRow, OutcomeRow, State, Warning_
from cacheaudit.report.comparison_words import figure
from cacheaudit.report.format import plural

_LISTED: Final = 5


def warnings(before: Side, after: Side, pairs: Pairs, fewest: int) -> list[Warning_]:
    """Say everything that a reader has to know before believing a difference."""
    found = [
        *pairs.warnings,
        *_too_few(pairs, fewest),
        *_task_set(pairs),
        *_models(before, after),
        *_prices(before, after),
        *_gaps(before, after, pairs),
    ]
    if before.path.resolve() == after.path.resolve():
        found.insert(0, Warning_("same_input", "Both sides are the same recording."))
    return found


def _too_few(pairs: Pairs, fewest: int) -> Iterator[Warning_]:
    count = len(pairs.pairs)
    if count < fewest:
        text = (
            f"{plural(count, 'paired task')}; it takes {fewest} to conclude anything."
            " Figures are shown, intervals are not."
        )
        yield Warning_("too_few_pairs", text)


def _task_set(pairs: Pairs) -> Iterator[Warning_]:
    if pairs.only_before or pairs.only_after:
        text = (
            f"The task sets differ: {len(pairs.only_before)} only before"
            f"{_listed(pairs.only_before)}, {len(pairs.only_after)} only after"
            f"{_listed(pairs.only_after)}. They are left out of every figure."
        )
        yield Warning_("task_set_differs", text)
    uneven = [
        pair.name
        for pair in pairs.pairs
        if pairs.by == "task" and len(pair.before.sessions) != len(pair.after.sessions)
    ]
    if uneven:
        text = (
            f"{plural(len(uneven), 'task')} took another number of sessions after than before"
            f"{_listed(uneven)}; where these are repeated trials, compare one trial with one."
        )
        yield Warning_("sessions_per_task_differ", text)


def _models(before: Side, after: Side) -> Iterator[Warning_]:
    if set(before.models) != set(after.models):
        text = f"The models differ: {_names(before.models)} before, {_names(after.models)} after."
        yield Warning_("model_differs", text)
    if set(before.providers) != set(after.providers):
        text = (
            f"The providers differ: {_names(before.providers)} before,"
            f" {_names(after.providers)} after."
        )
        yield Warning_("provider_differs", text)


def _prices(before: Side, after: Side) -> Iterator[Warning_]:
    shared = before.prices.keys() & after.prices.keys()
    changed = sorted(model for model in shared if before.prices[model] != after.prices[model])
    if changed:
        rows = [
            f"{model}: {_names(before.prices[model])} before, {_names(after.prices[model])} after"
            for model in changed[:_LISTED]
        ]
        text = f"Price rows of different dates or kinds were used ({'; '.join(rows)})."
        yield Warning_("price_date_differs", text)
    for side in (before, after):
        if side.undated:
            text = _calls(side.undated, side, "has", "have", "no date; the newest price was taken.")
            yield Warning_("price_date_unknown", text)


def _gaps(before: Side, after: Side, pairs: Pairs) -> Iterator[Warning_]:
    for side in (before, after):
        if side.without_task:
            text = _calls(side.without_task, side, "names", "name", "no task; left out.")
            yield Warning_("calls_without_task", text)
        if side.unpriced:
            text = _calls(
                side.unpriced, side, "has", "have", "no price; a task with such a call has no cost."
            )
            yield Warning_("calls_without_price", text)
        if side.without_usage:
            text = _calls(side.without_usage, side, "has", "have", "no usage; counted as free.")
            yield Warning_("calls_without_usage", text)
        if side.low_output:
            text = _calls(side.low_output, side, "has", "have", "a lower bound as output.")
            yield Warning_("output_is_lower_bound", text)
    for kind, what, lacks in _LACKS:
        count = sum(lacks(pair.before) or lacks(pair.after) for pair in pairs.pairs)
        if count:
            lack = "lacks" if count == 1 else "lack"
            whole = plural(len(pairs.pairs), "pair")
            yield Warning_(kind, f"{count:,} of {whole} {lack} {what} on a side.")


def _calls(number: int, side: Side, verb: str, verbs: str, rest: str) -> str:
    """Say what some calls of a side lack."""
    return f"{plural(number, 'call')} of {side.path} {verb if number == 1 else verbs} {rest}"


_LACKS: Final[tuple[tuple[str, str, Callable[[Task], bool]], ...]] = (
    ("outcome_missing", "an outcome", lambda task: task.outcome is None),
    ("times_missing", "starts and ends of calls", lambda task: task.seconds is None),
    ("cache_use_missing", "cache reads", lambda task: task.split is None),
)


def _listed(names: Iterable[str]) -> str:
    shown = sorted(names)
    if not shown:
        return ""
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return f" ({', '.join(shown[:_LISTED])}{more})"


def _names(names: Iterable[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return (", ".join(shown[:_LISTED]) + more) or "none"


def coverage(
    rows: Iterable[OutcomeRow], factor_rows: Iterable[FactorRow], currency: str = "USD"
) -> list[CoverageRow]:
    """Say of eight outcomes and seven groups of factors whether these recordings tell them."""
    measures = {m.name: m for row in rows for m in row.measures}

    def told(name: str, text: str, key: str) -> CoverageRow:
        found = measures.get(key)
        if found is None or not found.pairs:
            return _unknown(name, f"{text}: not in these recordings")
        before, after = (figure(found, value, currency) for value in (found.before, found.after))
        return CoverageRow(
            group="outcome",
            name=name,
            state="measured",
            text=f"{text}, {plural(found.pairs, 'pair')}",
            before=before,
            after=after,
        )

    return [
        _unknown(
            "stored size and peak memory",
            "a service does not show it; it takes an engine of your own",
        ),
        told("cache hits on repeated input", "share of input read from the cache", "hit_ratio"),
        _unknown("restore time", "part of the time to first token, never told apart by a service"),
        told("time to first token", "typical call, from its start", "first_token_p50"),
        told("generation speed", "output tokens a second behind the first one", "generation_speed"),
        _unknown(
            "throughput under concurrent use",
            "recorded tasks do not load a service; it takes a load test",
        ),
        told("total cost", "of a task, tokens times dated prices", "cost_per_task"),
        told("answer and task correctness", "share of tasks accepted", "pass_rate"),
        *(_factor_coverage(row) for row in factor_rows),
    ]


def _unknown(name: str, text: str) -> CoverageRow:
    return CoverageRow(group="outcome", name=name, state="not_measurable", text=text)


# How far a recording tells a group of factors, where it tells anything of it.
_TOLD: Final[dict[str, tuple[State, str]]] = {
    "agent architecture": ("measured", "programs and purposes of calls, as recorded"),
    "input and model configuration": ("measured", "models, as recorded"),
    "model architecture": ("not_measurable", "a service does not publish it"),
    "representation and compression": ("not_measurable", "a service does not show it"),
    "inference framework": ("estimated", "told from provider and surface; the engine is unknown"),
    "cache storage and transfer": ("estimated", "lifetimes of writes; where they lie is unknown"),
    "hardware and workload": ("estimated", "calls at once, from their times; hardware is unknown"),
}


def _factor_coverage(row: FactorRow) -> CoverageRow:
    state, text = _TOLD[row.name]
    if row.state == "not_recorded" and state != "not_measurable":
        state, text = "not_measurable", "not in these recordings"
    known = state != "not_measurable"
    return CoverageRow(
        group="factor",
        name=row.name,
        state=state,
        text=text,
        before=row.before if known else "",
        after=row.after if known else "",
        same=row.state == "same" if known else None,
    )


def factors(before: Side, after: Side) -> list[FactorRow]:
    """Say of each of seven groups of factors whether both sides are the same in it."""
    return [
        _factor(
            "agent architecture",
            _describe(before.clients, before.purposes),
            _describe(after.clients, after.purposes),
            set(before.clients) == {"not recorded"} or set(after.clients) == {"not recorded"},
        ),
        _factor("input and model configuration", _names(before.models), _names(after.models)),
        FactorRow("model architecture", "not_recorded", "", ""),
        FactorRow("representation and compression", "not_recorded", "", ""),
        _factor("inference framework", _names(before.providers), _names(after.providers)),
        _factor(
            "cache storage and transfer",
            f"writes kept {_names(before.ttls)}",
            f"writes kept {_names(after.ttls)}",
            not before.ttls and not after.ttls,
        ),
        _factor(
            "hardware and workload",
            f"up to {plural(before.most_at_once, 'call')} at once",
            f"up to {plural(after.most_at_once, 'call')} at once",
            not before.most_at_once or not after.most_at_once,
        ),
    ]


def _describe(clients: Iterable[str], purposes: Iterable[str]) -> str:
    return f"{_names(clients)}; calls for {_names(purposes)}"


def _factor(name: str, before: str, after: str, is_unknown: bool = False) -> FactorRow:
    if is_unknown:
        return FactorRow(name, "not_recorded", before, after)
    return FactorRow(name, "same" if before == after else "differs", before, after)
