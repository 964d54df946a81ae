"""Steps, scenarios and the simulator's accuracy as lines of text, for tables of any format."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import msgspec

from cacheaudit.model.money import plain
from cacheaudit.report import format as fmt
from cacheaudit.report.result import AuditResult, Scenario
from cacheaudit.report.verdict import (
    IDEAL,
    NO_CACHING,
    Balance,
    saving_of,
    scenario,
    scenarios,
    sum_of,
)
from cacheaudit.report.words import LEFT_OUT, mode_words, reason_words

_TITLES = {NO_CACHING: "No caching at all", IDEAL: "Every repeated token read"}


class StepLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the waterfall."""

    title: str
    change: str
    left: str
    alone: str


class ScenarioLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table of scenarios."""

    name: str
    title: str
    hit_ratio: str
    equivalents: str
    total: str
    exact: str
    saves: str
    is_worse: bool
    note: str
    command: str
    refused: str


def shown(value: Decimal | None, balanced: Balance, places: int) -> str:
    """Write a sum of the balance in its unit."""
    if value is None:
        return fmt.DASH
    if balanced.unit == "money":
        return fmt.money(plain(value), balanced.currency, places)
    return fmt.equivalents(plain(value))


def places_of(balanced: Balance) -> int:
    """Decimals that suit every sum of a balance."""
    return fmt.places_for([plain(balanced.paid)]) if balanced.unit == "money" else 0


def steps_text(balanced: Balance) -> list[StepLine]:
    """Write the steps, from what was paid to the best case."""
    places = places_of(balanced)

    def text(value: Decimal | None) -> str:
        return shown(value, balanced, places)

    first = StepLine(title=paid_title(balanced), change="", left=text(balanced.paid), alone="")
    last = StepLine(title="Best case", change="", left=text(balanced.best), alone="")
    steps = [
        StepLine(
            title=leap.title,
            change=text(leap.saves),
            left=text(leap.after),
            alone="" if leap.alone is None else text(leap.alone),
        )
        for leap in balanced.leaps
    ]
    return [first, *steps, last]


def paid_title(balanced: Balance) -> str:
    """Name what the steps begin with."""
    return f"Paid, {balanced.origin}" if balanced.unit == "money" else "Input, weighted"


def score_words(balanced: Balance) -> str:
    """Say how the score is made."""
    places = places_of(balanced)
    worst, paid, ideal = (
        shown(value, balanced, places)
        for value in (balanced.worst, balanced.scored, balanced.ideal)
    )
    start = f"without any cache these calls would have cost {worst}, "
    if balanced.ideal_is_fixes:
        return (
            f"{start}with all fixes, which do better here than any cache could, {ideal}; they "
            f"cost {paid}. The score says how much of that way was gone."
        )
    return (
        f"{start}with an ideal one, where every repeated token is read, {ideal}; they cost {paid}. "
        "The score says how much of that way was gone. The best case is another figure: what the "
        "fixes leave."
    )


def range_words(balanced: Balance) -> str:
    """Write the range of what is avoidable; empty where it is a point."""
    if balanced.low == balanced.high:
        return ""
    places = places_of(balanced)
    low, high = (shown(value, balanced, places) for value in (balanced.low, balanced.high))
    return "" if low == high else f"{low} to {high}"


def scenario_lines(result: AuditResult, balanced: Balance | None) -> list[ScenarioLine]:
    """Write the settings that were simulated, the calls as they were first."""
    what_if = result.what_if
    every = scenario(what_if.all_fixes)
    rows: list[Scenario] = []
    if what_if.baseline is not None:
        # From sizes alone the calls stand as they were billed; only changes to them are worked out.
        modes = result.simulation.modes
        is_played = bool(modes.get("bodies") or (result.simulation.calls and not modes))
        title = "As it was, simulated" if is_played else "As it was billed"
        rows.append(msgspec.structs.replace(what_if.baseline, title=title, saves=None))
    if every is not None and what_if.waterfall:
        rows.append(msgspec.structs.replace(every, title=every.title or "All fixes together"))
    rows += scenarios(result)
    unit = "money" if balanced is None else balanced.unit
    places = 2 if balanced is None else places_of(balanced)
    currency = result.totals.cost.currency
    return [_line(row, unit, places, currency) for row in rows]


def _line(row: Scenario, unit: str, places: int, currency: str) -> ScenarioLine:
    is_money = unit == "money"

    def text(value: Decimal | None) -> str:
        if value is None:
            return fmt.DASH
        return (
            fmt.money(plain(value), currency, places) if is_money else fmt.equivalents(plain(value))
        )

    total = sum_of(row, "money" if is_money else "equivalents")
    saves = saving_of(row.saves, "money" if is_money else "equivalents")
    return ScenarioLine(
        name=row.name,
        title=row.title or _TITLES.get(row.name, row.name.replace("-", " ")),
        hit_ratio=fmt.ratio(row.hit_ratio, fmt.DASH),
        equivalents=fmt.equivalents(row.input_equivalents),
        total=text(total),
        exact="" if total is None else f"{plain(total)} {currency if is_money else 'tokens'}",
        saves="" if row.saves is None else text(saves),
        is_worse=saves is not None and saves < 0,
        note=_note(row),
        command=row.command or "",
        refused=row.refused or "",
    )


def _note(row: Scenario) -> str:
    notes = []
    if row.added_calls:
        notes.append(f"{fmt.plural(row.added_calls, 'call')} added")
    notes += [f"{name} left out: {why}" for name, why in row.left_out.items()]
    if row.unjudged and row.command:
        told = [
            f"{fmt.plural(number, 'call')} {LEFT_OUT.get(reason, reason)}"
            for reason, number in row.unjudged.items()
        ]
        notes.append(f"as billed here and left out of the backtest: {', '.join(told)}")
    return "; ".join(notes)


def accuracy_words(result: AuditResult) -> str:
    """Say how well the simulation agrees with the report; empty where there is none."""
    simulation = result.simulation
    if not simulation.calls or simulation.exact_calls is None:
        return ""
    calls = fmt.plural(simulation.calls, "call")
    words = [
        (
            f"Reads predicted exactly for {simulation.exact_calls:,} of {calls} "
            f"({fmt.ratio(fmt.share(simulation.exact_calls, simulation.calls))})"
        )
    ]
    if simulation.mean_abs_error_tokens is not None:
        words.append(f"mean distance {simulation.mean_abs_error_tokens:,.0f} tokens")
    if simulation.unexplained_tokens is not None:
        words.append(f"{fmt.plural(simulation.unexplained_tokens, 'token')} expected and not read")
    if simulation.surplus_tokens:
        words.append(f"{simulation.surplus_tokens:,} read beyond what was expected")
    words += _counted(simulation.modes, mode_words)
    words += [f"not simulated: {text}" for text in _counted(simulation.refused, reason_words)]
    return "; ".join(words) + "."


def _counted(counts: dict[str, int], words: Callable[[str], str]) -> list[str]:
    return [f"{count:,} {words(name)}" for name, count in counts.items() if count]
