from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.report.axis import by_calls, by_time
from cacheaudit.report.figures import Slot
from cacheaudit.report.rows import rows_of

CALLS = st.lists(st.tuples(st.floats(0, 5_000), st.integers(0, 6)), min_size=2, max_size=80)


def slots(calls: list[tuple[float, int]]) -> list[Slot]:
    ordered = sorted(calls)
    return [
        Slot(index=n, lane=f"lane-{lane}", calls=1, at=at) for n, (at, lane) in enumerate(ordered)
    ]


@given(CALLS)
def test_bars_of_a_lane_never_overlap_and_time_never_runs_back(
    calls: list[tuple[float, int]],
) -> None:
    made = slots(calls)
    axis = by_time(made)
    assert axis is not None
    lanes: dict[str, list[float]] = {}
    for slot, x in zip(made, axis.xs, strict=True):
        assert 0 <= x <= axis.width - axis.pitch + 1e-6
        lanes.setdefault(slot.lane, []).append(x)
    for places in lanes.values():
        assert all(b - a >= axis.pitch - 1e-6 for a, b in pairwise(places))
    assert list(axis.xs) == sorted(axis.xs)
    moments = [axis.at(n * 50.0) for n in range(120)]
    assert moments == sorted(moments)
    assert moments[-1] <= axis.width


@given(CALLS)
def test_each_lane_has_one_row(calls: list[tuple[float, int]]) -> None:
    made = slots(calls)
    axis = by_calls(made)
    rows = rows_of(made, axis.xs, axis.pitch)
    names = [name for row in rows for name in row.lanes]
    assert sorted(names) == sorted({slot.lane for slot in made})
    assert sum(row.calls for row in rows) == len(made)
    assert len(rows) <= 5


def test_a_moment_inside_a_pause_stands_inside_it() -> None:
    axis = by_time(slots([(0.0, 0), (10.0, 0), (610.0, 0)]))
    assert axis is not None
    assert axis.at(310.0) == (axis.xs[1] + axis.xs[2]) / 2
    assert [gap.seconds for gap in axis.gaps] == [600.0]


def test_calls_of_other_lanes_at_the_same_moment_stand_above_one_another() -> None:
    axis = by_time(slots([(0.0, 0), (10.0, 1), (10.0, 2), (10.0, 3)]))
    assert axis is not None
    assert axis.xs[1] == axis.xs[2] == axis.xs[3] > axis.xs[0]


def test_without_every_time_there_is_no_axis_of_time() -> None:
    made = slots([(0.0, 0), (1.0, 0)])
    made[1].at = None
    assert by_time(made) is None


def test_small_lanes_that_follow_one_another_share_a_row() -> None:
    calls = [(float(n), 0) for n in range(60)] + [(10.0 * n + 0.5, n) for n in range(1, 6)]
    made = slots(calls)
    axis = by_calls(made)
    rows = rows_of(made, axis.xs, axis.pitch)
    assert [row.name for row in rows] == ["lane-0 · 60 calls", "5 lanes · 5 calls"]
