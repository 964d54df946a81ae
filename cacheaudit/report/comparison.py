"""What ``compare`` says, in the shape of its JSON.

Money and input equivalents are decimal strings, shares are between 0 and 1, times are seconds;
``None`` is *not known*. A change is after minus before.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from cacheaudit.report.result import Tool

COMPARE_SCHEMA = "cacheaudit.compare/1"

Outcome = Literal["pass_rate", "cost", "time", "cache_use"]
Unit = Literal["share", "money", "seconds", "tokens", "equivalents", "tokens_per_second"]
Conclusion = Literal["better", "worse", "higher", "lower", "no_difference_shown", "not_concluded"]
State = Literal["measured", "estimated", "not_measurable"]
Value = str | float | int | None


class Interval(msgspec.Struct, frozen=True):
    """Between which values the change lies, in ``level`` of all repetitions."""

    low: str | float
    high: str | float
    level: float


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of both sides.

    Attributes:
        name: ``pass_rate``, ``cost_per_task``, ``task_time_p95`` …
        unit: Unit of the values.
        before: Of the side before, over the pairs.
        after: Of the side after, over the pairs.
        change: After minus before.
        relative: Change relative to before.
        interval: Of the change; only for the figure that is concluded from.
        relative_interval: Of the relative change.
        pairs: Pairs in which both sides know the figure.
    """

    name: str
    unit: Unit
    before: Value
    after: Value
    change: Value
    relative: float | None = None
    interval: Interval | None = None
    relative_interval: Interval | None = None
    pairs: int


class OutcomeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One of the four outcomes; the first measure is the one that is concluded from."""

    outcome: Outcome
    conclusion: Conclusion
    reason: str
    measures: list[Measure]


class TaskSide(msgspec.Struct, frozen=True, kw_only=True):
    """One task on one side."""

    sessions: list[str]
    calls: int
    outcome: str | None
    cost: str | None
    seconds: float | None
    model_seconds: float | None
    total_input: int | None
    cache_read: int | None
    cache_write: int | None
    hit_ratio: float | None
    output: int | None
    input_equivalents: str | None


class TaskRow(msgspec.Struct, frozen=True):
    """A pair."""

    task: str
    before: TaskSide
    after: TaskSide


class SideRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one side is made of, unpaired tasks included."""

    path: str
    sources: dict[str, int]
    sessions: int
    tasks: int
    calls: int
    first: str | None
    last: str | None
    models: dict[str, int]
    prices: list[str]
    cost: str | None
    unpriced_calls: int


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """How tasks were put side by side; ``by`` is ``task``, ``session`` or ``order``."""

    by: str
    pairs: int
    needed: int
    only_before: list[str]
    only_after: list[str]


class Bootstrap(msgspec.Struct, frozen=True):
    """How intervals were made."""

    method: str
    resamples: int
    seed: int
    level: float


class Warning_(msgspec.Struct, frozen=True):  # noqa: N801 - ``Warning`` is Python's own
    """Something that stands between the figures and a conclusion."""

    kind: str
    text: str


class CoverageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One of the eight outcomes, or of the seven groups of factors, and what is known of it.

    Attributes:
        group: ``outcome`` or ``factor``.
        name: Which one.
        state: Measured, estimated from what was measured, or not measurable here.
        text: How, or why not.
        before: What is known of the side before; empty where nothing is.
        after: Likewise of the side after.
        same: Of a factor: whether both sides are the same in it, as far as is known.
    """

    group: Literal["outcome", "factor"]
    name: str
    state: State
    text: str
    before: str = ""
    after: str = ""
    same: bool | None = None


class FactorRow(msgspec.Struct, frozen=True):
    """A group of factors: whether both sides are the same in it."""

    name: str
    state: Literal["same", "differs", "not_recorded"]
    before: str
    after: str


class CompareResult(msgspec.Struct, frozen=True, kw_only=True):
    """Four outcomes side by side."""

    tool: Tool
    before: SideRow
    after: SideRow
    pairing: Pairing
    outcomes: list[OutcomeRow]
    tasks: list[TaskRow]
    warnings: list[Warning_]
    bootstrap: Bootstrap
    coverage: list[CoverageRow]
    factors: list[FactorRow]
    currency: str = "USD"
    schema: str = COMPARE_SCHEMA
