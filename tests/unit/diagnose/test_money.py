"""The premium of lost tokens: what they were billed as, less what reading them would have cost."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.money import Premium, premium, total
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook

BOOK = PriceBook()
# Opus 4.6: 5 USD a million of input, writes 6.25 (5m) and 10 (1h), reads 0.50.
WRITE_5M, WRITE_1H, UNCACHED, READ = (Decimal(text) / 10**6 for text in ("6.25", "10", "5", "0.5"))


def call(**parts: int) -> Call:
    return Call(
        id="c",
        provider="anthropic",
        model="claude-opus-4-6",
        started_at=1_772_000_000.0,
        usage=Usage(total_input=sum(parts.values()), cache_read=0, **parts),
    )


def test_five_minute_writes() -> None:
    loss = premium(call(write_5m=50_000), BOOK, 40_000)
    assert loss.cost == 40_000 * (WRITE_5M - READ)
    assert loss.input_equivalents == Decimal("1.15") * 40_000


def test_longer_lifetimes_stand_in_front_and_uncached_tokens_behind() -> None:
    mixed = call(write_5m=1_000, write_1h=2_000, uncached_input=500)
    assert premium(mixed, BOOK, 3_300).cost == (
        2_000 * (WRITE_1H - READ) + 1_000 * (WRITE_5M - READ) + 300 * (UNCACHED - READ)
    )
    assert premium(mixed, BOOK, 1_500, offset=1_800).cost == (
        200 * (WRITE_1H - READ) + 1_000 * (WRITE_5M - READ) + 300 * (UNCACHED - READ)
    )


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.integers(0, 5_000), st.data())
def test_parts_of_a_loss_add_up_to_the_whole(w5: int, w1: int, rest: int, data) -> None:
    subject = call(write_5m=w5, write_1h=w1, uncached_input=rest)
    whole = w5 + w1 + rest
    cut = data.draw(st.integers(0, whole))
    parts = [premium(subject, BOOK, cut), premium(subject, BOOK, whole - cut, offset=cut)]
    assert parts[0].cost + parts[1].cost == premium(subject, BOOK, whole).cost
    assert premium(subject, BOOK, whole).cost == (
        w5 * (WRITE_5M - READ) + w1 * (WRITE_1H - READ) + rest * (UNCACHED - READ)
    )


def test_an_unknown_model_has_no_cost_but_documented_multiples() -> None:
    unknown = msgspec.structs.replace(call(write_1h=10_000), model="made-up-1")
    loss = premium(unknown, BOOK, 10_000)
    assert loss.cost is None
    assert loss.input_equivalents == 10_000 * (Decimal(2) - Decimal("0.1"))


def test_an_unknown_automatic_cache_has_neither() -> None:
    unknown = msgspec.structs.replace(call(uncached_input=10_000), model="made-up-1")
    assert premium(unknown, BOOK, 10_000) == Premium(None, None)


@pytest.mark.parametrize(
    "premiums",
    [[], [Premium(None, None)], [Premium(Decimal(1), Decimal(1), "USD"), Premium(None, None)]],
)
def test_a_sum_with_an_unknown_part_is_unknown(premiums) -> None:
    assert total(premiums) is None


def test_currencies_are_not_added() -> None:
    loss = total([Premium(Decimal(1), Decimal(1), "USD"), Premium(Decimal(2), Decimal(7), "CNY")])
    assert loss is not None
    assert (loss.input_equivalents, loss.cost) == (3, None)


def test_a_finding_carries_the_sum_of_its_calls() -> None:
    session = Script().call(0, 0, 30_000).call(400, 0, 31_000).call(800, 0, 32_000).session()
    finding = diagnose(session, BOOK).findings[0]
    assert finding.tokens_lost == 61_000
    assert finding.lost is not None
    assert finding.lost.cost == 61_000 * (WRITE_5M - READ)


def test_an_automatic_cache_loses_the_difference_of_uncached_and_read() -> None:
    # DeepSeek and OpenAI do not bill writes of their automatic caches.
    session = (
        Script(provider="openai", model="gpt-5.4")
        .call(1_772_000_000, 0, None, uncached=50_000)
        .call(1_772_000_030, 10_000, None, uncached=42_000)
        .session()
    )
    card = BOOK.card("openai", "gpt-5.4", 1_772_000_030.0, total_input=52_000)
    assert card is not None
    finding = diagnose(session, BOOK).findings[0]
    assert finding.lost is not None
    assert finding.lost.cost == 40_000 * (card.uncached - card.read)
