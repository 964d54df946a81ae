"""Times in and out of text."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.model.clock import day, iso, parse_time


@given(st.floats(-6e10, 2.5e11, allow_nan=False))
def test_writing_equals_the_library(at: float) -> None:
    moment = dt.datetime.fromtimestamp(at, tz=dt.UTC)
    expected = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert iso(at) == expected


@given(st.integers(0, 4 * 10**12))
def test_milliseconds_survive_a_round_trip(millis: int) -> None:
    at = millis / 1000
    assert parse_time(iso(at)) == at
    assert day(at).isoformat() == iso(at)[:10]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-02-13T01:43:49.531Z", 1770947029.531),
        ("2026-02-13T02:43:49.531+01:00", 1770947029.531),
        ("2026-02-13T01:43:49.531", 1770947029.531),
        (1770947029.531, 1770947029.531),
        (1770947029531, 1770947029.531),
        (1770947029531000, 1770947029.531),
        (1770947029531000000, 1770947029.531),
        ("1770947029", 1770947029.0),
        ("soon", None),
        (None, None),
        (True, None),
    ],
)
def test_reading(value: object, seconds: float | None) -> None:
    found = parse_time(value)
    assert found == (None if seconds is None else pytest.approx(seconds, abs=1e-6))
