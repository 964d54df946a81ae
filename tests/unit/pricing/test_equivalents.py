"""Ordinary-input-token equivalents."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.model.call import Call
from cacheaudit.model.clock import parse_time
from cacheaudit.model.usage import Usage, UsagePart
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.equivalents import (
    call_input_equivalents,
    default_multipliers,
    input_equivalents,
)

NOV = parse_time("2026-11-20T12:00:00Z")
BOOK = PriceBook()


def _call(usage: Usage | None, model: str, provider: str | None = "anthropic") -> Call:
    return Call(id="c", provider=provider, model=model, started_at=NOV, usage=usage)


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        # uncached + 1.25 x 5m + 2 x 1h + read multiplier x read
        ("claude-opus-5", 100 + 1_250 + 4_000 + 1_000),
        ("claude-opus-5-5", 100 + 1_250 + 4_000 + 500),
        ("claude-fable-5-1", 100 + 1_250 + 4_000 + 250),
    ],
)
def test_multipliers_come_from_the_model(model: str, wanted: int) -> None:
    usage = Usage(
        total_input=13_100,
        uncached_input=100,
        cache_read=10_000,
        write_5m=1_000,
        write_1h=2_000,
        output=999,
    )
    assert call_input_equivalents(_call(usage, model), BOOK) == wanted


def test_the_ledger_of_eleven_requests() -> None:
    """Input, write and read of requests 1 to 11 in the mission ledger: 1.25 and 0.1."""
    rows = [
        (8_500, 8_500, 0),
        (10_000, 1_500, 8_500),
        (11_500, 1_500, 10_000),
        (32_800, 21_300, 11_500),
        (34_650, 34_650, 0),
        (36_150, 1_500, 34_650),
        (37_650, 37_650, 0),
        (39_150, 1_500, 37_650),
        (40_650, 33_300, 7_350),
        (42_150, 3_000, 39_150),
        (51_870, 44_520, 7_350),
    ]
    total = Decimal(0)
    for size, write, read in rows:
        usage = Usage(
            total_input=size,
            uncached_input=size - write - read,
            cache_read=read,
            write_5m=write,
            output=0,
        )
        part = call_input_equivalents(_call(usage, "claude-opus-5"), BOOK)
        assert part is not None
        total += part
    assert total == 251_765  # 1.25 x 188,920 written and 0.1 x 156,150 read


def test_documented_defaults_where_no_price_is_known() -> None:
    usage = Usage(uncached_input=10, cache_read=100, write_5m=100, write_1h=100, output=1)
    unknown = _call(usage, "claude-next-9")
    assert call_input_equivalents(unknown, BOOK) == 10 + 10 + 125 + 200
    spoken = Usage(uncached_input=10, cache_read=100, output=1, dialect="anthropic")
    assert call_input_equivalents(_call(spoken, "who-knows", None), BOOK) == 20
    assert call_input_equivalents(_call(usage, "who-knows", "some-proxy"), BOOK) is None
    assert call_input_equivalents(_call(usage, "who-knows", None), BOOK) is None


def test_without_cache_no_multiplier_is_needed() -> None:
    usage = Usage(uncached_input=77, cache_read=0, output=1)
    assert call_input_equivalents(_call(usage, "who-knows", "some-proxy"), BOOK) == 77


def test_a_missing_lifetime_falls_back_to_the_documented_one() -> None:
    usage = Usage(uncached_input=0, cache_read=0, write_12h=100, output=0)
    assert call_input_equivalents(_call(usage, "gpt-6-luna", "openai"), BOOK) == 250
    assert call_input_equivalents(_call(usage, "claude-opus-5"), BOOK) is None


def test_unknown_split_and_unknown_usage() -> None:
    assert call_input_equivalents(_call(Usage(total_input=5), "claude-opus-5"), BOOK) is None
    assert call_input_equivalents(_call(None, "claude-opus-5"), BOOK) is None
    assert input_equivalents(Usage(uncached_input=5), None) is None


def test_a_free_model_has_no_ratio() -> None:
    card = BOOK.card("google", "gemma-4-31b-it", NOV)
    assert card is not None
    assert card.uncached == 0
    assert input_equivalents(Usage(uncached_input=1, cache_read=1), card) is None
    assert input_equivalents(Usage(uncached_input=1, cache_read=0), card) == 1


def test_other_models_parts_are_converted_by_price() -> None:
    part = UsagePart(
        kind="advisor_message", model="claude-haiku-4-5", uncached_input=1_000, cache_read=100
    )
    usage = Usage(
        uncached_input=0,
        cache_read=0,
        parts=(UsagePart(kind="message", uncached_input=10, cache_read=0), part),
    )
    # Haiku 4.5 input costs 1, Opus 5 input 5: 1,010 of its tokens are 202 of Opus's.
    assert call_input_equivalents(_call(usage, "claude-opus-5"), BOOK) == 10 + 202


counts = st.integers(0, 10**9)


@given(st.lists(st.tuples(counts, counts, counts), max_size=8), st.sampled_from(["glm-5.2", "x"]))
def test_equivalents_add_up_exactly(rows: list[tuple[int, int, int]], model: str) -> None:
    """Also where the ratio of two prices (0.26 / 1.4) does not end."""
    card = BOOK.card("zai", model, NOV) or default_multipliers("anthropic")

    def weigh(uncached: int, read: int, write: int) -> Decimal:
        found = input_equivalents(
            Usage(uncached_input=uncached, cache_read=read, write_5m=write), card
        )
        assert found is not None
        return found

    apart = sum((weigh(*row) for row in rows), Decimal(0))
    assert weigh(*(sum(row[i] for row in rows) for i in range(3))) == apart
