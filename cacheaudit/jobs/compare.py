"""The same tasks before and after a change: pass rate, cost, time and cache use side by side."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cacheaudit._version import __version__
from cacheaudit.errors import UsageError
from cacheaudit.jobs.common import rules_version
from cacheaudit.jobs.comparing.bootstrap import LEVEL, RESAMPLES, resamples_for
from cacheaudit.jobs.comparing.context import coverage, factors, warnings
from cacheaudit.jobs.comparing.gather import Side, Task
from cacheaudit.jobs.comparing.outcomes import FEWEST_PAIRS, Settings, outcomes
from cacheaudit.jobs.comparing.pairs import pair
from cacheaudit.jobs.inputs import Inputs, Progress
from cacheaudit.model.money import plain
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.comparison import (
    Bootstrap,
    CompareResult,
    Pairing,
    SideRow,
    TaskRow,
    TaskSide,
)
from cacheaudit.report.result import Tool


def compare(
    before: Path,
    after: Path,
    inputs: Inputs,
    progress: Progress,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> CompareResult:
    """Compare two recordings.

    Args:
        before: File or folder of recorded sessions.
        after: The same tasks, after the change.
        inputs: Environment, home and price files; its paths are not looked at.
        progress: Told after every session.
        seed: Seed of the intervals.
        resamples: How often pairs are drawn anew.

    Raises:
        UsageError: A path does not exist, or nothing can be paired.
        UnknownFormatError: One of them holds no recorded session.
    """
    book = PriceBook(inputs.prices)
    sides = []
    for path in (before, after):
        side = Side(path, book)
        side.read(msgspec.structs.replace(inputs, paths=(path,)), progress)
        sides.append(side)
    mine, theirs = sides
    pairs = pair(mine, theirs)
    if not pairs.pairs:
        raise UsageError(
            f"Nothing of {str(before)!r} can be paired with {str(after)!r}.",
            "Give both recordings the same `task` names, or compare recordings that have calls.",
        )
    settings = Settings(seed=seed, resamples=resamples)
    rows = outcomes(pairs.pairs, settings)
    groups = factors(mine, theirs)
    return CompareResult(
        tool=Tool(__version__, rules_version(), book.as_of),
        before=_side(mine),
        after=_side(theirs),
        pairing=Pairing(
            by=pairs.by,
            pairs=len(pairs.pairs),
            needed=FEWEST_PAIRS,
            only_before=pairs.only_before,
            only_after=pairs.only_after,
        ),
        outcomes=rows,
        tasks=[TaskRow(p.name, _task(p.before), _task(p.after)) for p in pairs.pairs],
        warnings=warnings(mine, theirs, pairs, FEWEST_PAIRS),
        bootstrap=Bootstrap(
            "paired, percentile", resamples_for(len(pairs.pairs), resamples), seed, LEVEL
        ),
        coverage=coverage(rows, groups),
        factors=groups,
    )


def _side(side: Side) -> SideRow:
    return SideRow(
        path=str(side.path),
        sources=side.sources,
        sessions=side.session_count,
        tasks=len(side.tasks),
        calls=side.calls,
        first=side.moments.first_iso,
        last=side.moments.last_iso,
        models=dict(sorted(side.models.items())),
        prices=side.price_ids,
        cost=plain(side.cost) if side.calls > side.unpriced + side.without_usage else None,
        unpriced_calls=side.unpriced,
    )


def _task(task: Task) -> TaskSide:
    cost, weight, split = task.known_cost, task.known_equivalents, task.split
    return TaskSide(
        sessions=list(task.sessions),
        calls=task.calls,
        outcome=task.outcome,
        cost=None if cost is None else plain(cost),
        seconds=task.seconds,
        model_seconds=task.model_seconds,
        total_input=task.told("total_input"),
        cache_read=task.told("cache_read"),
        cache_write=task.told("cache_write"),
        hit_ratio=None if split is None else round(split[0] / split[1], 6),
        output=task.told("output"),
        input_equivalents=None if weight is None else plain(weight),
    )
