from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.report.axis import by_calls, by_time
from cacheaudit.report.figures import Sparkline, Timeline, dearest
from cacheaudit.report.svg import duration, timeline_svg
from tests.unit.report import samples

CALLS = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500), st.integers(0, 3)),
    max_size=300,
)


def rows(parts: list[tuple[int, int, int, int]]) -> list[samples.CallRow]:
    return [
        samples.call(number, number, read + write + rest, write, read, f"lane-{lane}")
        for number, (read, write, rest, lane) in enumerate(parts, 1)
    ]


@given(CALLS, st.integers(4, 40))
def test_a_folded_timeline_loses_no_token(
    parts: list[tuple[int, int, int, int]], limit: int
) -> None:
    line = Timeline(limit)
    for row in rows(parts):
        line.add(row)
    assert sum(s.calls for s in line.slots) == len(parts) == line.calls
    for name, place in (("read", 0), ("write", 1), ("uncached", 2)):
        assert sum(getattr(s, name) for s in line.slots) == sum(p[place] for p in parts)
    for lane in {p[3] for p in parts}:
        mine = [s for s in line.slots if s.lane == f"lane-{lane}"]
        assert sum(s.read for s in mine) == sum(p[0] for p in parts if p[3] == lane)


@given(CALLS)
def test_few_calls_are_not_folded(parts: list[tuple[int, int, int, int]]) -> None:
    line = Timeline(1_000)
    for row in rows(parts):
        line.add(row)
    assert line.each == 1
    assert [s.number for s in line.slots] == list(range(1, len(parts) + 1))


def test_many_calls_are_folded_to_the_limit() -> None:
    line = Timeline(100)
    for row in rows([(10, 0, 0, 0)] * 1_000):
        line.add(row)
    assert line.each == 16
    assert len(line.slots) <= 100
    assert {s.mean_input for s in line.slots} == {10}


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 100)), max_size=500))
def test_a_sparkline_fits_its_width(pairs: list[tuple[int, int]]) -> None:
    line = Sparkline(24)
    for read, rest in pairs:
        line.add(read, read + rest)
    assert len(line.draw()) == min(24, len(pairs)) or 12 <= len(line.draw()) <= 24


def test_a_sparkline_shows_levels_and_what_is_unknown() -> None:
    line = Sparkline(10)
    for read, total in ((0, 100), (50, 100), (100, 100), (None, 100), (0, None)):
        line.add(read, total)
    assert line.draw() == "▁▅█··"


def test_the_dearest_come_first() -> None:
    groups = samples.audit().by_purpose
    assert [g.key for g in dearest(list(reversed(groups)), 1)] == ["main"]


def test_the_figure_says_in_words_what_it_shows() -> None:
    line = Timeline(100)
    for number, row in enumerate(samples.calls(), 1):
        line.add(row, (2,) if row.id == "r7" else (), number)
    axis = by_time(line.slots)
    assert axis is not None
    svg = timeline_svg(line, axis, "a label", True, "USD")
    assert "Call 7 at 10:07:55: 37,650 written; $0.1457; read as predicted" in svg
    assert "predicted 42,150 read, reported 7,350" in svg
    assert "Cached for 5 min 0 s from the start of call 6" in svg
    assert 'href="#f2"' in svg
    assert "5 min 35 s without a call" in svg
    assert svg.count('class="hit"') == 14


def test_lane_names_are_escaped() -> None:
    line = Timeline(10)
    line.add(samples.call(1, 0, 10, 0, 10, "<script>alert(1)</script>"))
    svg = timeline_svg(line, by_calls(line.slots), '"label"', True, "USD")
    assert "<script" not in svg
    assert 'aria-label="&quot;label&quot;"' in svg


def test_duration() -> None:
    spans = [duration(s) for s in (5, 335, 44_132, 200_000)]
    assert spans == ["5 s", "5 min 35 s", "12 h 15 min", "2 d 7 h"]
