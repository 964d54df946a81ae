"""The three numbers on top: what was paid, what was avoidable, and what the best case would cost.

The steps add up exactly: paid, less what the bill has beyond the simulation, less what each fix
saves, is the best case.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Literal

import msgspec

from cacheaudit.model.money import ZERO, decimal
from cacheaudit.report.result import AuditResult, SavingRow, Scenario, Step
from cacheaudit.report.summary import paid

NO_CACHING, IDEAL = "no-caching", "ideal"
Unit = Literal["money", "equivalents"]


class Leap(msgspec.Struct, frozen=True, kw_only=True):
    """One step from paid to best case.

    Attributes:
        title: What it stands for.
        saves: Negative where it costs more.
        alone: What the fix saves by itself; ``None`` where not known or no fix.
        before: Sum before it.
        after: Sum after it.
        step: The fix; ``None`` for a difference of bills.
    """

    title: str
    saves: Decimal
    alone: Decimal | None = None
    before: Decimal
    after: Decimal
    step: Step | None = None


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """From paid to best case.

    Attributes:
        unit: What the sums are in: money, or input equivalents where a price is not known.
        currency: Currency of the money.
        paid: What was paid.
        origin: ``computed`` or ``reported``.
        leaps: The steps.
        best: What is left: ``paid`` less what all steps save.
        avoidable: What the fixes save together; negative where they cost more.
        low: Least that they save.
        high: Most that they save.
        score: Share of the possible savings that was made, 0 to 100.
        worst: The same calls without any cache.
        ideal: The same calls with every repeated token read, or with all fixes where that is less.
        scored: What was paid for the calls that the score is of.
        ideal_is_fixes: ``ideal`` is the sum with all fixes, which is below that of any cache.
    """

    unit: Unit
    currency: str
    paid: Decimal
    origin: str
    leaps: tuple[Leap, ...]
    best: Decimal
    avoidable: Decimal
    low: Decimal
    high: Decimal
    score: int | None = None
    worst: Decimal | None = None
    ideal: Decimal | None = None
    scored: Decimal | None = None
    ideal_is_fixes: bool = False


def scenario(value: Scenario | dict[str, Any] | None) -> Scenario | None:
    """Read a scenario, also where it is a plain mapping."""
    if value is None or isinstance(value, Scenario):
        return value
    return msgspec.convert({"name": "all-fixes", **value}, Scenario, strict=False)


def scenarios(result: AuditResult) -> list[Scenario]:
    """List the other settings that were simulated."""
    found = (scenario(value) for value in result.what_if.scenarios)
    return [value for value in found if value is not None]


def balance(result: AuditResult) -> Balance | None:
    """Set up the balance; ``None`` where nothing was simulated."""
    what_if = result.what_if
    every, base = scenario(what_if.all_fixes), what_if.baseline
    if every is None or base is None:
        return None
    for unit in ("money", "equivalents"):
        found = _balance(result, every, base, unit)
        if found is not None:
            return found
    return None


def _balance(result: AuditResult, every: Scenario, base: Scenario, unit: Unit) -> Balance | None:
    total, origin = _paid(result, unit)
    before, after = sum_of(base, unit), sum_of(every, unit)
    if total is None or before is None or after is None:
        return None
    billed = sum_of(result.what_if.reported, unit)
    if billed is None:
        billed = total
    leaps = _leaps(result.what_if.waterfall, unit, total, billed - before, before - after)
    avoidable = before - after
    low, high = _range(result, unit, avoidable, billed - before)
    ends = {row.name: sum_of(row, unit) for row in scenarios(result)}
    worst, ideal = ends.get(NO_CACHING), ends.get(IDEAL)
    # Fixes change what is sent, and may do better than any cache could with what was sent.
    cheapest = None if ideal is None else min(ideal, after)
    return Balance(
        unit=unit,
        currency=result.totals.cost.currency,
        paid=total,
        origin=origin,
        leaps=tuple(leaps),
        best=total - (billed - before) - avoidable,
        avoidable=avoidable,
        low=low,
        high=high,
        score=_score(worst, billed, cheapest),
        worst=worst,
        ideal=cheapest,
        scored=billed,
        ideal_is_fixes=ideal is not None and after <= ideal,
    )


def _paid(result: AuditResult, unit: Unit) -> tuple[Decimal | None, str]:
    if unit == "money":
        value, origin = paid(result.totals)
    else:
        value, origin = result.totals.input_equivalents, "computed"
    return (None if value is None else decimal(value)), origin


def sum_of(row: Scenario | None, unit: Unit) -> Decimal | None:
    """What a setting costs."""
    if row is None:
        return None
    value = row.cost if unit == "money" else row.input_equivalents
    return None if value is None else decimal(value)


def saving_of(row: SavingRow | None, unit: Unit) -> Decimal | None:
    """What something saves."""
    if row is None:
        return None
    value = row.cost if unit == "money" else row.input_equivalents
    return None if value is None else decimal(value)


def _leaps(
    steps: Sequence[Step], unit: Unit, total: Decimal, difference: Decimal, avoidable: Decimal
) -> list[Leap]:
    found: list[Leap] = []
    running = total

    def leap(title: str, saves: Decimal, step: Step | None, alone: Decimal | None) -> None:
        nonlocal running
        found.append(
            Leap(
                title=title,
                saves=saves,
                alone=alone,
                before=running,
                after=running - saves,
                step=step,
            )
        )
        running -= saves

    if difference:
        leap("Billed beyond what the rules predict", difference, None, None)
    left = avoidable
    for step in steps:
        saves = saving_of(step.saves, unit)
        if saves is not None:
            leap(step.title, saves, step, saving_of(step.alone, unit))
            left -= saves
    if left:
        leap("All fixes together" if not steps else "Together beyond these", left, None, None)
    return found


def _range(
    result: AuditResult, unit: Unit, avoidable: Decimal, difference: Decimal
) -> tuple[Decimal, Decimal]:
    """As given; else as wide as bill and simulation are apart."""
    low, high = saving_of(result.what_if.low, unit), saving_of(result.what_if.high, unit)
    if low is None or high is None:
        low, high = avoidable, avoidable + difference
    return min(low, high, avoidable), max(low, high, avoidable)


def _score(worst: Decimal | None, scored: Decimal, ideal: Decimal | None) -> int | None:
    if worst is None or ideal is None or worst <= ideal:
        return None
    share = (worst - scored) / (worst - ideal) * 100
    whole = int(min(max(share, ZERO), Decimal(100)).quantize(Decimal(1), rounding=ROUND_HALF_UP))
    return whole if whole < 100 or scored <= ideal else 99
