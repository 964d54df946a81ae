"""Costs of single calls as whole numbers are those of exact decimals."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.jobs.costs import Costs
from cacheaudit.model.money import plain
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.card import RateCard

BOOK = PriceBook()
MODELS = (
    ("anthropic", "claude-opus-5"),
    ("anthropic", "claude-haiku-4-5"),
    ("openai", "gpt-5.4"),
    ("google", "gemini-2.5-flash"),
)
TOKENS = st.none() | st.integers(0, 3_000_000)


def card(provider: str, model: str) -> RateCard:
    found = BOOK.card(provider, model, 1_795_000_000.0)
    assert found is not None
    return found


@given(st.sampled_from(MODELS), TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, st.none() | st.just(3))
def test_as_decimals_have_it(
    which: tuple[str, str],
    uncached: int | None,
    read: int | None,
    five: int | None,
    hour: int | None,
    output: int | None,
    searches: int | None,
) -> None:
    row = card(*which)
    five, hour = (n if ttl in row.writes else None for n, ttl in ((five, "5m"), (hour, "1h")))
    searches = None if row.web_search is None else searches
    usage = Usage(
        uncached_input=uncached,
        cache_read=read,
        write_5m=five,
        write_1h=hour,
        output=output,
        web_searches=searches,
    )
    exact = row.amount(
        uncached or 0, read or 0, five or 0, hour or 0, output=output or 0,
        web_searches=searches or 0,
    )  # fmt: skip
    assert Costs().text(row, usage) == plain(exact)


def test_a_price_is_no_rounder_than_it_is() -> None:
    # $5 a million in, $25 out: 7 tokens in and 3 out are 110 millionths of a dollar.
    row = card("anthropic", "claude-opus-5")
    assert row.uncached == Decimal("0.000005")
    assert Costs().text(row, Usage(uncached_input=7, cache_read=0, output=3)) == "0.00011"
    assert Costs().text(row, Usage(uncached_input=200_000, cache_read=0, output=0)) == "1"
    assert Costs().text(row, Usage()) == "0"


def test_rows_are_told_apart() -> None:
    costs = Costs()
    usage = Usage(uncached_input=1_000_000, cache_read=0, output=0)
    both = [costs.text(card(*which), usage) for which in MODELS[:2]]
    assert both == ["5", "1"]
    assert both == [costs.text(card(*which), usage) for which in MODELS[:2]]
