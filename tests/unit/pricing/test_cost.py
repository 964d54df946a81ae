"""Bills of whole calls: lines, parts, what is not known, and that sums add up."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.errors import PricingError
from cacheaudit.model.call import Call
from cacheaudit.model.clock import parse_time
from cacheaudit.model.usage import (
    FLAG_NOT_BILLED,
    FLAG_OUTPUT_LOWER_BOUND,
    FLAG_TTL_ASSUMED,
    Usage,
    UsagePart,
)
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.cost import UNDATED, cost, price_call

NOV = parse_time("2026-11-20T12:00:00Z")
BOOK = PriceBook()


def _call(usage: Usage | None, model: str | None = "claude-opus-5-5", **given: object) -> Call:
    fields: dict[str, object] = {"provider": "anthropic", "started_at": NOV} | given
    return Call(id="c", model=model, usage=usage, **fields)  # type: ignore[arg-type]


def _usage(**given: object) -> Usage:
    fields: dict[str, object] = {"uncached_input": 0, "cache_read": 0, "output": 0} | given
    return Usage(**fields)  # type: ignore[arg-type]


def test_lines_show_how_the_sum_comes_about() -> None:
    bill = price_call(
        _call(_usage(uncached_input=50, cache_read=1_000, write_1h=10, output=5)), BOOK
    )
    assert [(line.unit, line.tokens, line.rate) for line in bill.lines] == [
        ("uncached", 50, Decimal("0.000004")),
        ("read", 1_000, Decimal("0.0000002")),
        ("write_1h", 10, Decimal("0.000008")),
        ("output", 5, Decimal("0.00002")),
    ]
    assert bill.amount == Decimal("0.00058")
    assert bill.cards == ("anthropic/claude-opus-5-5@start/standard",)
    assert bill.currency == "USD"
    assert bill.reason is None


def test_nothing_consumed_costs_nothing() -> None:
    bill = price_call(_call(_usage(total_input=0)), BOOK)
    assert bill.amount == 0
    assert bill.lines == ()


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (_call(None), "no usage recorded"),
        (_call(_usage(), model=None), "model unknown"),
        (_call(_usage(), model="claude-banana-7"), "unknown model 'claude-banana-7' of anthropic"),
        (_call(_usage(output=None)), "output tokens unknown"),
        (_call(Usage(output=3)), "input tokens unknown"),
        (_call(Usage(total_input=9, output=3)), "cached part of the input unknown"),
        (_call(_usage(uncached_input=-3)), "a token count is negative"),
        (
            _call(_usage(write_12h=5, total_input=5), model="gpt-6-luna", provider="openai"),
            "no price for write_12h of gpt-6-luna",
        ),
        (
            _call(_usage(service_tier="scale"), model="gpt-6-sol", provider="openai"),
            "no price for service 'scale' of gpt-6-sol",
        ),
    ],
)
def test_what_is_not_known_has_no_amount_and_a_reason(call: Call, reason: str) -> None:
    bill = price_call(call, BOOK)
    assert bill.amount is None
    assert bill.reason == reason


def test_unknown_split_has_an_upper_bound() -> None:
    # Writes unknown too: the dearest the 1,000 tokens can have been is a one-hour write.
    bill = price_call(_call(Usage(total_input=1_000, output=10)), BOOK)
    assert bill.amount is None
    assert bill.upper_bound == 1_000 * Decimal("0.000008") + 10 * Decimal("0.00002")
    # Writes known: the rest can only be uncached or read.
    known = price_call(_call(Usage(total_input=1_000, write_5m=400, output=0)), BOOK)
    assert known.amount is None
    assert known.upper_bound == 400 * Decimal("0.000005") + 600 * Decimal("0.000004")


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**5))
def test_no_possible_split_costs_more_than_the_upper_bound(
    fresh: int, read: int, write: int, output: int
) -> None:
    total = fresh + read + write
    blind = price_call(_call(Usage(total_input=total, output=output)), BOOK)
    for field in ("write_5m", "write_1h"):
        usage = Usage(
            total_input=total,
            uncached_input=fresh,
            cache_read=read,
            output=output,
            **{field: write},
        )
        seen = price_call(_call(usage), BOOK)
        assert seen.amount is not None
        bound = blind.amount if total == 0 else blind.upper_bound
        assert bound is not None
        assert seen.amount <= bound


def test_refusal_before_output_is_not_billed() -> None:
    bill = price_call(_call(_usage(uncached_input=500, flags=(FLAG_NOT_BILLED,))), BOOK)
    assert bill.amount == 0
    assert bill.flags == (FLAG_NOT_BILLED,)


def test_unlabelled_writes_are_billed_at_the_default_and_flagged() -> None:
    default = price_call(_call(_usage(write_other=1_000_000)), BOOK)
    assert default.amount == 5
    assert FLAG_TTL_ASSUMED in default.flags
    hour = price_call(_call(_usage(write_other=1_000_000, write_other_ttl="1h")), BOOK)
    assert hour.amount == 8
    openai = price_call(
        _call(_usage(write_other=100_000), model="gpt-6-sol", provider="openai"), BOOK
    )
    assert openai.amount == Decimal("0.25")


def test_parts_are_billed_one_by_one_with_their_own_model() -> None:
    usage = _usage(
        uncached_input=999,  # what the top level says is not billed where there are parts
        output=999,
        parts=(
            UsagePart(kind="message", uncached_input=1_000, cache_read=0, output=100),
            UsagePart(
                kind="advisor_message",
                model="claude-haiku-4-5",
                uncached_input=2_000,
                cache_read=0,
                output=10,
            ),
        ),
    )
    bill = price_call(_call(usage), BOOK)
    assert bill.amount == (
        1_000 * Decimal("0.000004")
        + 100 * Decimal("0.00002")
        + 2_000 * Decimal("0.000001")
        + 10 * Decimal("0.000005")
    )
    assert len(bill.cards) == 2


def test_one_unknown_part_makes_the_sum_unknown() -> None:
    part = UsagePart(kind="message", uncached_input=1, cache_read=0, output=1)
    other = msgspec.structs.replace(part, model="claude-next")
    bill = price_call(_call(_usage(parts=(part, other))), BOOK)
    assert bill.amount is None
    assert bill.upper_bound is None
    assert "claude-next" in (bill.reason or "")


def test_each_part_has_its_own_tier() -> None:
    part = UsagePart(kind="message", uncached_input=60_000, cache_read=0, output=0)
    split = price_call(_call(_usage(parts=(part, part)), model="claude-haiku-5-5"), BOOK)
    assert split.amount == 120_000 * Decimal("0.0000001")
    whole = price_call(
        _call(_usage(uncached_input=120_000, total_input=120_000), model="claude-haiku-5-5"), BOOK
    )
    assert whole.amount == 120_000 * Decimal("0.0000005")


def test_a_sum_of_passes_does_not_lift_the_tier() -> None:
    usage = _usage(uncached_input=120_000, total_input=120_000, context_input=60_000)
    bill = price_call(_call(usage, model="claude-haiku-5-5"), BOOK)
    assert bill.amount == 120_000 * Decimal("0.0000001")


def test_tier_that_cannot_be_told_is_not_guessed() -> None:
    bill = price_call(_call(Usage(output=5), model="claude-haiku-5-5"), BOOK)
    assert bill.amount is None
    assert "prompt size unknown" in (bill.reason or "")


def test_dates() -> None:
    usage = _usage(cache_read=1_000_000)
    early = parse_time("2026-10-01T00:00:00Z")
    known = price_call(_call(usage, model="claude-sonnet-5-5", started_at=early), BOOK)
    assert known.amount == Decimal("0.2")
    assert UNDATED not in known.flags
    for call in (
        _call(usage, model="claude-sonnet-5-5", started_at=None),
        _call(usage, model="claude-sonnet-5-5", started_at=5.0, relative_time=True),
    ):
        bill = price_call(call, BOOK)
        assert bill.amount == Decimal("0.1")
        assert UNDATED in bill.flags


def test_searches_are_billed_once_and_not_halved_in_a_batch() -> None:
    part = UsagePart(kind="message", uncached_input=0, cache_read=0, output=0)
    usage = _usage(web_searches=3, parts=(part, part), service_tier="batch")
    assert price_call(_call(usage), BOOK).amount == Decimal("0.03")


def test_a_lower_bound_of_output_is_passed_on() -> None:
    bill = price_call(_call(_usage(output=7, flags=(FLAG_OUTPUT_LOWER_BOUND,))), BOOK)
    assert FLAG_OUTPUT_LOWER_BOUND in bill.flags
    assert bill.amount == 7 * Decimal("0.00002")


counts = st.integers(0, 10**9)
usages = st.builds(
    _usage,
    uncached_input=counts,
    cache_read=counts,
    write_5m=counts,
    write_1h=counts,
    output=counts,
)
CARDS = [
    card
    for provider, model in (
        ("anthropic", "claude-opus-5-5"),
        ("anthropic", "claude-haiku-5-5"),
        ("moonshot", "kimi-k3"),
        ("deepseek", "deepseek-v4-pro"),
        ("zai", "glm-5.2"),
    )
    for geo in (None, "us")
    if (card := BOOK.card(provider, model, NOV, geo=geo, total_input=1)) is not None
]


@given(st.lists(usages, max_size=8), st.sampled_from(CARDS))
def test_the_cost_of_a_sum_is_the_sum_of_the_costs(bills: list[Usage], card: object) -> None:
    assert isinstance(card, type(CARDS[0]))
    fields = ("uncached_input", "cache_read", "write_5m", "write_1h", "output")
    sums = {name: sum(getattr(one, name) for one in bills) for name in fields}
    apart = sum((cost(one, card).amount or Decimal(0) for one in bills), Decimal(0))
    assert cost(_usage(**sums), card).amount == apart
    assert (
        card.amount(
            uncached=sums["uncached_input"],
            read=sums["cache_read"],
            w5=sums["write_5m"],
            w1=sums["write_1h"],
            output=sums["output"],
        )
        == apart
    )


@given(usages)
def test_amounts_are_exact(usage: Usage) -> None:
    """Against whole numbers of 10^-12 dollars, which cannot round."""
    card = CARDS[0]
    pico = {"uncached_input": 4, "cache_read": Decimal("0.2"), "write_5m": 5, "write_1h": 8}
    wanted = sum(int(rate * 10**6) * getattr(usage, name) for name, rate in pico.items())
    wanted += 20 * 10**6 * (usage.output or 0)
    amount = cost(usage, card).amount
    assert amount is not None
    assert int(amount.scaleb(12)) == wanted


def test_a_row_refuses_tokens_that_it_has_no_price_for() -> None:
    card = BOOK.card("openai", "gpt-6-luna", NOV)
    assert card is not None
    with pytest.raises(PricingError, match="writes kept 12h"):
        card.amount(w12=1)
    assert card.amount(w30=8) == Decimal("0.000001")
