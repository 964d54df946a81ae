"""Comparison: exact sums, intervals against a naive second reading, restraint, warnings."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.errors import UnknownFormatError, UsageError
from cacheaudit.jobs.compare import compare
from cacheaudit.jobs.comparing.bootstrap import (
    interval_of,
    percentile_interval,
    quantile,
    resampled_sums,
    resamples_for,
)
from cacheaudit.jobs.inputs import Inputs, silent
from cacheaudit.report.comparison import CompareResult, Measure, OutcomeRow

START = 1_793_700_000.0  # 2026-11-03


def call(number: int, at: float, read: int, write: int, **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 0,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        "cache_creation": {"ephemeral_5m_input_tokens": write, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 100,
    }
    return {
        "schema": "cacheaudit.call/1",
        "id": f"c{number}",
        "provider": "anthropic",
        "surface": "claude_api",
        "model": "claude-sonnet-4-6",
        "started_at": at,
        "ended_at": at + 10,
        "response": {"usage": usage},
        **more,
    }


def write(folder: Path, name: str, calls: Sequence[dict[str, Any]]) -> Path:
    file = folder / f"{name}.session.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in calls))
    return file


def side(
    folder: Path,
    name: str,
    tasks: int,
    *,
    read: int = 0,
    seconds: float = 20,
    accepted: int | None = None,
    **more: Any,
) -> Path:
    """Two calls a task; the second reads ``read`` of 10,000 tokens and starts ``seconds`` later."""
    lines = []
    for n in range(tasks):
        at = START + 1_000 * n
        named = {"task": f"t{n}", "session": f"{name}-{n}", **more}
        lines.append(call(2 * n, at, 0, 10_000, **named))
        # Tasks differ a little, so that intervals have a width.
        late = {**named, "outcome": "accepted" if accepted is None or n < accepted else "rejected"}
        lines.append(call(2 * n + 1, at + seconds + n % 3, read, 10_000 - read + n, **late))
    return write(folder, name, lines)


def run(before: Path, after: Path, **settings: Any) -> CompareResult:
    inputs = Inputs(paths=(), environment={}, home=before.parent)
    return compare(before, after, inputs, silent, **settings)


def row(result: CompareResult, outcome: str) -> OutcomeRow:
    return next(r for r in result.outcomes if r.outcome == outcome)


def measure(result: CompareResult, name: str) -> Measure:
    return next(m for r in result.outcomes for m in r.measures if m.name == name)


def kinds(result: CompareResult) -> set[str]:
    return {warning.kind for warning in result.warnings}


def test_figures_are_exact(tmp_path: Path) -> None:
    """Sonnet 4.6: 3 for a million, writes 3.75, reads 0.30, output 15."""
    result = run(side(tmp_path, "a", 12), side(tmp_path, "b", 12, read=9_000))
    writes = [Decimal(20_000 + n) for n in range(12)]
    output = Decimal(200) * 15
    mine = [(w * Decimal("3.75") + output) / 1_000_000 for w in writes]
    theirs = [
        ((w - 9_000) * Decimal("3.75") + 9_000 * Decimal("0.30") + output) / 1_000_000
        for w in writes
    ]
    cost = measure(result, "cost_per_task")
    assert Decimal(str(cost.before)) == (sum(mine) / 12).quantize(Decimal("1e-9"))
    assert Decimal(str(cost.after)) == (sum(theirs) / 12).quantize(Decimal("1e-9"))
    # Every task saves the same, so the interval has no width.
    saved = Decimal("-0.03105")
    assert Decimal(str(cost.change)) == saved
    assert cost.interval is not None
    assert (Decimal(str(cost.interval.low)), Decimal(str(cost.interval.high))) == (saved, saved)
    assert cost.relative == pytest.approx(float(sum(theirs) / sum(mine)) - 1)
    assert result.tasks[3].before.cost == format(mine[3], "f").rstrip("0")
    weighted = measure(result, "input_equivalents_per_task")
    # 9,000 tokens read for 0.1 instead of written for 1.25.
    assert Decimal(str(weighted.change)) == -9_000 * Decimal("1.15")
    ratio = measure(result, "hit_ratio")
    assert ratio.before == 0
    assert ratio.after == pytest.approx(12 * 9_000 / int(sum(writes)))


def test_conclusions_and_directions(tmp_path: Path) -> None:
    worse = side(tmp_path, "a", 12, seconds=60, accepted=2)
    better = side(tmp_path, "b", 12, read=9_000, seconds=20)
    there = run(worse, better)
    words = {r.outcome: r.conclusion for r in there.outcomes}
    assert words == {
        "pass_rate": "better",
        "cost": "better",
        "time": "better",
        "cache_use": "higher",
    }
    back = {r.outcome: r.conclusion for r in run(better, worse).outcomes}
    assert back == {"pass_rate": "worse", "cost": "worse", "time": "worse", "cache_use": "lower"}
    same = run(better, side(tmp_path, "c", 12, read=9_000, seconds=20))
    assert {r.conclusion for r in same.outcomes} == {"no_difference_shown"}
    assert there.warnings == []


def test_times(tmp_path: Path) -> None:
    result = run(side(tmp_path, "a", 12, seconds=20), side(tmp_path, "b", 12, seconds=50))
    # Second call 20, 21 or 22 s after the first, each call 10 s long.
    assert measure(result, "task_time_mean").before == 31
    assert measure(result, "task_time_p50").before == 31
    assert measure(result, "task_time_p95").before == 32
    assert measure(result, "task_time_mean").change == 30
    assert measure(result, "call_time_p50").before == 10
    assert measure(result, "first_token_p50").before is None
    assert measure(result, "first_token_p50").pairs == 0


@pytest.mark.parametrize(("pairs", "is_concluded"), [(1, False), (9, False), (10, True)])
def test_too_few_pairs_are_not_concluded_from(
    tmp_path: Path, pairs: int, is_concluded: bool
) -> None:
    result = run(side(tmp_path, "a", pairs), side(tmp_path, "b", pairs, read=9_000))
    cost = row(result, "cost")
    assert (cost.conclusion == "better") is is_concluded
    assert (cost.conclusion == "not_concluded") is not is_concluded
    assert (cost.measures[0].interval is not None) is is_concluded
    assert ("too_few_pairs" in kinds(result)) is not is_concluded
    assert cost.measures[0].change is not None


def test_an_outcome_counts_its_own_pairs(tmp_path: Path) -> None:
    calls = [call(n, START + 100 * n, 0, 100, task=f"t{n}") for n in range(12)]
    for line in calls[:4]:
        line["outcome"] = "accepted"
    for line in calls[:6]:
        line["model"] = "a-model-without-a-price"
    result = run(write(tmp_path, "a", calls), write(tmp_path, "b", calls))
    assert measure(result, "pass_rate").pairs == 4
    assert measure(result, "cost_per_task").pairs == 6
    assert measure(result, "task_time_mean").pairs == 12
    assert row(result, "cost").conclusion == "not_concluded"
    assert row(result, "time").conclusion == "no_difference_shown"
    assert {"outcome_missing", "calls_without_price"} <= kinds(result)
    assert result.tasks[0].before.cost is None


def test_failures_are_paid_by_what_was_accepted(tmp_path: Path) -> None:
    result = run(side(tmp_path, "a", 12, accepted=6), side(tmp_path, "b", 12, accepted=12))
    each, total = measure(result, "cost_per_accepted_task"), measure(result, "cost_per_task")
    assert Decimal(str(each.before)) == Decimal(str(total.before)) * 2
    assert each.after == total.after
    nobody = run(side(tmp_path, "c", 12, accepted=0), side(tmp_path, "d", 12))
    assert measure(nobody, "cost_per_accepted_task").before is None


def test_the_last_verdict_of_a_task_counts(tmp_path: Path) -> None:
    calls = [
        call(1, START + 50, 0, 100, task="t", outcome="rejected"),
        call(2, START, 0, 100, task="t", outcome="accepted"),
    ]
    result = run(write(tmp_path, "a", calls), write(tmp_path, "b", calls[1:]))
    assert [t.before.outcome for t in result.tasks] == ["rejected"]
    assert [t.after.outcome for t in result.tasks] == ["accepted"]


def test_a_session_of_one_task_is_all_that_tasks(tmp_path: Path) -> None:
    calls = [
        call(1, START, 0, 1_000, session="s", task="t"),
        call(2, START + 20, 0, 2_000, session="s", lane="agent-1", purpose="subagent"),
        call(3, START + 40, 0, 4_000, session="s", purpose="compaction"),
    ]
    result = run(write(tmp_path, "a", calls), write(tmp_path, "b", calls[:1]))
    assert result.tasks[0].before.calls == 3
    assert result.tasks[0].before.cache_write == 7_000
    mixed = [*calls, call(4, START + 60, 0, 8_000, session="s", task="u")]
    result = run(write(tmp_path, "c", mixed), write(tmp_path, "d", mixed))
    assert [t.before.calls for t in result.tasks] == [1, 1]
    assert "calls_without_task" in kinds(result)


def test_other_tasks_are_named_and_left_out(tmp_path: Path) -> None:
    result = run(side(tmp_path, "a", 14), side(tmp_path, "b", 12))
    assert result.pairing.by == "task"
    assert result.pairing.only_before == ["t12", "t13"]
    assert result.pairing.only_after == []
    assert "task_set_differs" in kinds(result)
    assert measure(result, "cost_per_task").pairs == 12
    assert result.before.calls == 28


def test_pairing_by_session_and_by_order(tmp_path: Path) -> None:
    mine = [call(n, START + 100 * n, 0, 100 + n, session=f"s{n}") for n in range(3)]
    result = run(write(tmp_path, "a", mine), write(tmp_path, "b", mine[1:]))
    assert result.pairing.by == "session"
    assert [t.task for t in result.tasks] == ["s1", "s2"]
    assert {"paired_by_session", "task_set_differs"} <= kinds(result)
    theirs = [call(n, START - 100 * n, 0, 200 + n, session=f"x{n}") for n in range(2)]
    result = run(write(tmp_path, "c", mine), write(tmp_path, "d", theirs))
    assert result.pairing.by == "order"
    assert [t.task for t in result.tasks] == ["s0 → x1", "s1 → x0"]
    assert result.pairing.only_before == ["s2"]
    assert "paired_by_order" in kinds(result)
    result = run(side(tmp_path, "e", 2), write(tmp_path, "f", theirs))
    assert "tasks_on_one_side" in kinds(result)


def test_other_models_providers_and_price_dates_are_said(tmp_path: Path) -> None:
    base = side(tmp_path, "a", 10)
    assert kinds(run(base, side(tmp_path, "b", 10, model="claude-opus-4-6"))) == {"model_differs"}
    assert kinds(run(base, side(tmp_path, "c", 10, surface="foundry"))) == {"provider_differs"}
    # The read price of Sonnet 5.5 fell on 2026-10-07.
    after = side(tmp_path, "d", 10, model="claude-sonnet-5-5")
    old = [json.loads(line) for line in after.read_text().splitlines()]
    for line in old:
        line["started_at"] -= 40 * 86_400
        line["ended_at"] -= 40 * 86_400
    result = run(write(tmp_path, "e", old), after)
    assert kinds(result) == {"price_date_differs"}
    assert "same_input" in kinds(run(base, base))


def test_what_is_not_recorded_is_said(tmp_path: Path) -> None:
    result = run(side(tmp_path, "a", 10), side(tmp_path, "b", 10))
    states = {r.name: r.state for r in result.coverage}
    assert [r.group for r in result.coverage] == ["outcome"] * 8 + ["factor"] * 7
    assert states["generation speed"] == "not_measurable"
    assert states["model architecture"] == states["representation and compression"]
    assert states["model architecture"] == "not_measurable"
    assert states["input and model configuration"] == "measured"
    assert states["inference framework"] == states["hardware and workload"] == "estimated"
    # No client is named in these recordings.
    assert states["agent architecture"] == "not_measurable"
    rows = {r.name: r for r in result.coverage}
    assert rows["total cost"].before == rows["total cost"].after
    assert rows["input and model configuration"].before == "claude-sonnet-4-6"
    assert rows["inference framework"].same is True
    assert rows["restore time"].same is None
    assert states["stored size and peak memory"] == "not_measurable"
    assert states["restore time"] == "not_measurable"
    assert states["throughput under concurrent use"] == "not_measurable"
    assert states["time to first token"] == "not_measurable"
    assert states["total cost"] == states["answer and task correctness"] == "measured"
    assert len(result.factors) == 7
    assert {f.name: f.state for f in result.factors}["inference framework"] == "same"
    timed = side(tmp_path, "c", 10, first_token_at=START + 1)
    lines = [json.loads(line) for line in timed.read_text().splitlines()]
    for line in lines:
        line["first_token_at"] = line["started_at"] + 2
    timed = write(tmp_path, "c", lines)
    result = run(timed, timed)
    assert {r.name: r.state for r in result.coverage}["time to first token"] == "measured"
    assert measure(result, "first_token_p95").before == 2


def test_the_time_is_split_and_generation_has_a_speed(tmp_path: Path) -> None:
    """Two calls of 10 s: the first token after 2 s, 100 tokens in 8 s, tools for 5 s."""
    calls = [json.loads(line) for line in side(tmp_path, "a", 10).read_text().splitlines()]
    for line in calls:
        line["first_token_at"] = line["started_at"] + 2
    for line in calls[1::2]:
        line["tool_seconds"] = 5.0
    path = write(tmp_path, "a", calls)
    result = run(path, path)
    assert measure(result, "first_token_p50").before == 2
    assert measure(result, "generation_p95").before == 8
    assert measure(result, "tool_time_p50").after == 5
    assert measure(result, "generation_speed").before == 100 / 8
    rows = {r.name: r for r in result.coverage}
    assert (rows["generation speed"].state, rows["generation speed"].before) == ("measured", "12.5")


def test_first_use_going_on_and_coming_back_are_kept_apart(tmp_path: Path) -> None:
    def lines(after_pause: int) -> list[dict[str, Any]]:
        return [
            entry
            for n in range(10)
            for entry in (
                call(4 * n, START + 1_000 * n, 100, 900, task=f"t{n}", session=f"s{n}"),
                call(4 * n + 1, START + 1_000 * n + 300, 900, 100, task=f"t{n}", session=f"s{n}"),
                # A refresh is no part of the conversation: the pause is one of 400 s.
                call(
                    4 * n + 2,
                    START + 1_000 * n + 570,
                    1_000,
                    0,
                    task=f"t{n}",
                    session=f"s{n}",
                    purpose="keep_alive",
                ),
                call(
                    4 * n + 3,
                    START + 1_000 * n + 700,
                    after_pause,
                    1_000 - after_pause,
                    task=f"t{n}",
                    session=f"s{n}",
                ),
            )
        ]

    result = run(write(tmp_path, "a", lines(0)), write(tmp_path, "b", lines(1_000)))
    found = {
        phase: (
            measure(result, f"hit_ratio_{phase}").before,
            measure(result, f"hit_ratio_{phase}").after,
        )
        for phase in ("first", "continuous", "after_pause")
    }
    assert found == {"first": (0.1, 0.1), "continuous": (0.9, 0.9), "after_pause": (0, 1)}


def test_intervals_agree_with_an_independent_bootstrap(tmp_path: Path) -> None:
    """The same statistics by numpy, from draws of its own: within the noise of 10,000 draws."""
    np = pytest.importorskip("numpy")
    rng = Random(5)
    sides = []
    for name, low in (("a", 4_000), ("b", 2_000)):
        lines = [
            call(n, START + 100 * n, 0, rng.randrange(low, low + 6_000), task=f"t{n}")
            | {"outcome": rng.choice(["accepted", "accepted", "rejected"])}
            for n in range(40)
        ]
        sides.append(write(tmp_path, name, lines))
    result = run(*sides)
    cost = np.array([[float(side.cost or 0) for side in (t.before, t.after)] for t in result.tasks])
    passed = np.array(
        [[side.outcome == "accepted" for side in (t.before, t.after)] for t in result.tasks]
    )
    picks = np.random.default_rng(17).integers(0, 40, (10_000, 40))
    mean = cost[picks].mean(axis=1)
    share = passed[picks].mean(axis=1)
    each = cost[picks].sum(axis=1) / passed[picks].sum(axis=1)
    for name, drawn in (
        ("cost_per_task", mean[:, 1] - mean[:, 0]),
        ("pass_rate", share[:, 1] - share[:, 0]),
        ("cost_per_accepted_task", each[:, 1] - each[:, 0]),
    ):
        bounds = measure(result, name).interval
        assert bounds is not None
        low, high = np.percentile(drawn, [2.5, 97.5])
        noise = 0.06 * (high - low)
        assert float(bounds.low) == pytest.approx(low, abs=noise), name
        assert float(bounds.high) == pytest.approx(high, abs=noise), name


def test_unusable_input(tmp_path: Path) -> None:
    good = side(tmp_path, "a", 2)
    with pytest.raises(UsageError, match="There is no"):
        run(good, tmp_path / "nowhere")
    other = tmp_path / "note.txt"
    other.write_text("hello")
    with pytest.raises(UnknownFormatError):
        run(good, other)
    lines = [json.loads(line) | {"task": "x"} for line in good.read_text().splitlines()]
    with pytest.raises(UsageError, match="paired"):
        run(good, write(tmp_path, "b", lines))


def test_the_same_seed_gives_the_same_interval(tmp_path: Path) -> None:
    a, b = side(tmp_path, "a", 20, accepted=9), side(tmp_path, "b", 20, accepted=12)
    first, again, other = run(a, b), run(a, b), run(a, b, seed=7, resamples=400)
    assert first.outcomes == again.outcomes
    assert first.bootstrap.resamples == 10_000
    assert other.bootstrap == type(other.bootstrap)("paired, percentile", 400, 7, 0.95)
    bounds = measure(first, "pass_rate").interval
    assert bounds is not None
    assert bounds.low <= 3 / 20 <= bounds.high


ROWS = st.lists(
    st.tuples(st.integers(0, 10**15), st.integers(0, 10**15), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)


@given(rows=ROWS, seed=st.integers(0, 2**32))
def test_resampled_sums_equal_a_naive_reading(rows: list[tuple[int, ...]], seed: int) -> None:
    drawn = resampled_sums(rows, 20, Random(seed))
    naive_rng = Random(seed)
    naive = [
        tuple(map(sum, zip(*naive_rng.choices(rows, k=len(rows)), strict=True))) for _ in range(20)
    ]
    assert drawn == naive


def test_the_interval_approaches_the_exact_distribution() -> None:
    """Five pairs can be enumerated: 3,125 resamples."""
    rows = [(0, 5), (0, 9), (0, 2), (0, 14), (0, 7)]
    every = [sum(b for _, b in pick) for pick in itertools.product(rows, repeat=5)]
    low, high = percentile_interval(every)
    drawn = interval_of(resampled_sums(rows, 20_000, Random(1)), lambda sums: sums[1])
    assert drawn is not None
    assert abs(drawn[0] - low) <= 1
    assert abs(drawn[1] - high) <= 1


@settings(max_examples=50)
@given(st.lists(st.integers(-1_000, 1_000), min_size=40, max_size=400))
def test_an_interval_leaves_a_fortieth_out_on_each_side(values: list[int]) -> None:
    low, high = percentile_interval(values)
    assert sum(v < low for v in values) <= len(values) / 40
    assert sum(v > high for v in values) <= len(values) / 40
    assert low <= high


def test_a_statistic_that_seldom_exists_has_no_interval() -> None:
    sums = [(0,)] * 20 + [(1,)] * 80
    assert interval_of(sums, lambda s: s[0] or None) is None
    assert interval_of([], lambda s: s[0]) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_quantiles(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found is not None
    assert min(values) <= found <= max(values)
    assert quantile(values, 0) == min(values)
    assert quantile(values, 1) == max(values)


def test_known_quantiles() -> None:
    assert quantile([4, 1, 3, 2], 0.5) == 2.5
    assert quantile(list(range(101)), 0.95) == 95
    assert quantile([], 0.5) is None


def test_large_comparisons_draw_less_often() -> None:
    assert resamples_for(1_000) == 10_000
    assert resamples_for(4_000) == 5_000
    assert resamples_for(10**6) == 2_000


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Differences drawn around a known mean: the interval should hold it in most of 200 trials."""
    rng = Random(11)
    held = 0
    for trial in range(200):
        rows = [(500, 500 + round(rng.gauss(20, 60))) for _ in range(30)]
        sums = resampled_sums(rows, 400, Random(trial))
        bounds = interval_of(sums, lambda s: (s[1] - s[0]) / 30)
        assert bounds is not None
        held += bounds[0] <= 20 <= bounds[1]
    assert 176 <= held <= 199


def test_tokens_that_a_call_does_not_tell_are_not_compared(tmp_path: Path) -> None:
    before, after = side(tmp_path, "a", 4), side(tmp_path, "b", 4, read=9_000)
    lines = after.read_text(encoding="utf-8").splitlines()
    entry = json.loads(lines[-1])
    del entry["response"]["usage"]["cache_creation"]
    del entry["response"]["usage"]["cache_creation_input_tokens"]
    after.write_text("\n".join([*lines[:-1], json.dumps(entry), ""]), encoding="utf-8")

    result = run(before, after)

    assert [task.after.cache_write is None for task in result.tasks] == [False] * 3 + [True]
    assert measure(result, "cache_write_per_task").pairs == 3
    assert measure(result, "total_input_per_task").pairs == 4
