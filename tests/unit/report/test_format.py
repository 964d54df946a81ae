from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.model.money import plain
from cacheaudit.report import format as fmt


@pytest.mark.parametrize(
    ("value", "currency", "places", "shown"),
    [
        ("6.984", "USD", 2, "$6.98"),
        ("6.985", "USD", 2, "$6.99"),
        ("1234567.5", "USD", 2, "$1,234,567.50"),
        ("0.00004", "USD", 4, "<$0.0001"),
        ("0.004", "USD", 2, "<$0.01"),
        ("0", "USD", 2, "$0.00"),
        ("-0.0021", "USD", 2, "-<$0.01"),
        ("-3.5", "USD", 2, "-$3.50"),
        ("12.3", "CNY", 2, "CN¥12.30"),
        ("12.3", "CHF", 2, "12.30 CHF"),
        (None, "USD", 2, "not known"),
    ],
)
def test_money(value: str | None, currency: str, places: int, shown: str) -> None:
    assert fmt.money(value, currency, places) == shown


@given(st.decimals(min_value=0, max_value=10**9, allow_nan=False, places=8))
def test_money_is_the_half_up_rounding_of_the_exact_value(value: Decimal) -> None:
    rounded = value.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
    shown = fmt.money(plain(value), "USD", 2)
    if value > 0 and rounded == 0:
        assert shown == "<$0.01"
    else:
        assert Decimal(shown.removeprefix("$").replace(",", "")) == rounded


def test_a_column_of_small_amounts_gets_four_places() -> None:
    assert fmt.places_for(["0.5", "0.01", None]) == 4
    assert fmt.places_for(["0.5", "1"]) == 2
    assert fmt.places_for([None]) == 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, fmt.DASH),
        (0, "0"),
        (999, "999"),
        (37_650, "37.6k"),
        (1_207_360, "1.2M"),
        (250_000, "250k"),
    ],
)
def test_short_counts_fit_five_characters(value: int | None, shown: str) -> None:
    assert fmt.short_count(value) == shown


def test_unknown_is_never_shown_as_zero() -> None:
    for shown in (fmt.count(None), fmt.short_count(None), fmt.equivalents(None), fmt.ratio(None)):
        assert "0" not in shown


def test_ratio() -> None:
    assert fmt.ratio(0.526462) == "52.6 %"
    assert fmt.ratio("1") == "100.0 %"
    assert fmt.ratio(0.0) == "0.0 %"


def test_share_of_nothing_is_unknown() -> None:
    assert fmt.share(1, 0) is None
    assert fmt.share(None, 5) is None
    assert fmt.share(1, 3) == "0.333333"


def test_whole_percent_does_not_round_something_to_nothing() -> None:
    assert fmt.whole_percent(Decimal("0.001"), Decimal(1)) == "under 1 %"
    assert fmt.whole_percent(Decimal(0), Decimal(1)) == "0 %"
    assert fmt.whole_percent(Decimal("0.565"), Decimal(1)) == "57 %"


@given(st.text())
def test_printable_text_obeys_no_terminal(text: str) -> None:
    shown = fmt.printable(text)
    assert "\x1b" not in shown
    assert "\n" not in shown
    assert len(shown) == len(text)


def test_period_names_a_single_day_once() -> None:
    same = fmt.period("2026-11-03T10:00:00Z", "2026-11-03T10:10:10Z")
    assert same == "2026-11-03 10:00 to 10:10 UTC"
    assert fmt.period(None, None) == "times not known"


def test_short_id_keeps_both_ends() -> None:
    assert fmt.short_id("msg_1") == "msg_1"
    short = fmt.short_id("3e7a6a04-a0ba-4b1a-a237-885868368e75:278")
    assert len(short) == 18
    assert short.startswith("3e7a6a04")
    assert short.endswith("e75:278")
