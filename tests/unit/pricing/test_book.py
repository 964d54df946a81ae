"""Which row a call is billed by: names, dates, kinds of service, regions, sizes, hours."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.model.clock import parse_time
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.card import RateCard
from cacheaudit.pricing.names import candidates, infer_table
from cacheaudit.pricing.table import builtin_names, midnight

NOV = parse_time("2026-11-20T12:00:00Z")
MILLION = Decimal(1_000_000)
BOOK = PriceBook()


@pytest.fixture(scope="module")
def book() -> PriceBook:
    return PriceBook()


def _card(book: PriceBook, provider: str | None, model: str, **given: object) -> RateCard:
    at = given.pop("at", NOV)
    card = book.card(provider, model, at, **given)  # type: ignore[arg-type]
    assert card is not None, book.why_not(provider, model)
    return card


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("claude-opus-5[1m]", "claude-opus-5"),
        ("anthropic/claude-opus-4.5", "claude-opus-4-5"),
        ("CLAUDE-OPUS-4-5", "claude-opus-4-5"),
        ("claude-opus-5-latest", "claude-opus-5"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4-0"),
        ("claude-opus-4-20250514", "claude-opus-4-0"),
        ("claude-3-5-sonnet-20241022", "claude-3-5-sonnet"),
        ("claude-mythos-5-1", "claude-mythos-5-1"),
    ],
)
def test_claude_ids(book: PriceBook, given: str, model: str) -> None:
    for provider in ("anthropic", None):
        card = _card(book, provider, given)
        assert (card.provider, card.model) == ("anthropic", model)


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("global.anthropic.claude-opus-4-5-20251101-v1:0", "global.claude-opus-4-5"),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-opus-5-5",
            "claude-opus-5-5",
        ),
    ],
)
def test_bedrock_ids_go_to_the_bedrock_table(book: PriceBook, given: str, model: str) -> None:
    for provider in ("bedrock", "aws", "amazon-bedrock", "anthropic", None):
        card = _card(book, provider, given)
        assert (card.provider, card.model) == ("bedrock", model)


def test_regional_bedrock_costs_a_tenth_more_than_global(book: PriceBook) -> None:
    regional = _card(book, "anthropic", "claude-opus-5-5", surface="bedrock")
    worldwide = _card(book, "bedrock", "global.anthropic.claude-opus-5-5")
    assert regional.uncached == worldwide.uncached * Decimal("1.1")
    assert regional.writes["1h"] == worldwide.writes["1h"] * Decimal("1.1")


def test_a_surface_given_by_name_goes_before_the_form_of_the_id(book: PriceBook) -> None:
    card = _card(book, "anthropic", "us.anthropic.claude-opus-5-5", surface="claude_api")
    assert card.provider == "anthropic"


@pytest.mark.parametrize(
    ("model", "table"),
    [
        ("claude-opus-5", "anthropic"),
        ("gpt-5.6-sol", "openai"),
        ("o3", "openai"),
        ("o4-mini-2025-04-16", "openai"),
        ("deepseek-flash", "deepseek"),
        ("gemini-3.8-flash", "google"),
        ("models/gemini-2.5-flash", "google"),
        ("kimi-k3", "moonshot"),
        ("glm-5.2", "zai"),
        ("qwen3-max", "qwen"),
        ("grok-4.7", "xai"),
        ("MiniMax-M3", "minimax"),
        ("openrouter/anthropic/claude-opus-5.5", "openrouter"),
        ("gpt-oss-120b", None),
        ("llama-3.3-70b", None),
        ("somebody/claude-opus-5", None),
        ("opus", None),
    ],
)
def test_provider_told_from_the_model(model: str, table: str | None) -> None:
    assert infer_table(model) == table


@pytest.mark.parametrize(
    "model", ["claude-opus-9", "claude", "opus-5", "claude-opus-5-x", "gpt-99", "", "claude-opus"]
)
def test_no_guess_at_unknown_models(book: PriceBook, model: str) -> None:
    assert book.card(None, model, NOV) is None
    assert book.card("anthropic", model, NOV) is None
    assert "unknown" in book.why_not("anthropic", model)


def test_no_price_of_another_seller_for_an_unknown_provider(book: PriceBook) -> None:
    assert book.card("some-proxy", "claude-opus-5", NOV) is None
    assert "unknown model 'claude-opus-5' of some-proxy" in book.why_not(
        "some-proxy", "claude-opus-5"
    )
    assert book.card("../anthropic", "claude-opus-5", NOV) is None


def test_sonnet_55_reads_get_cheaper_on_the_day(book: PriceBook) -> None:
    change = parse_time("2026-10-07T00:00:00Z")
    assert change is not None
    before = _card(book, "anthropic", "claude-sonnet-5-5", at=change - 0.001)
    after = _card(book, "anthropic", "claude-sonnet-5-5", at=change)
    assert [before.read * MILLION, after.read * MILLION] == [Decimal("0.2"), Decimal("0.1")]
    assert (before.valid_to, after.valid_from) == ("2026-10-07", "2026-10-07")
    assert before.id != after.id


def test_long_context_premium_of_46_ended(book: PriceBook) -> None:
    for model, low, high in (("claude-opus-4-6", 5, 10), ("claude-sonnet-4-6", 3, 6)):
        old = parse_time("2026-03-12T23:59:59Z")
        new = parse_time("2026-03-13T00:00:00Z")
        assert (
            _card(book, "anthropic", model, at=old, total_input=200_000).uncached * MILLION == low
        )
        assert (
            _card(book, "anthropic", model, at=old, total_input=200_001).uncached * MILLION == high
        )
        assert (
            _card(book, "anthropic", model, at=new, total_input=900_000).uncached * MILLION == low
        )


@pytest.mark.parametrize(
    ("provider", "model", "threshold", "ratio", "output_ratio"),
    [
        ("anthropic", "claude-haiku-5-5", 100_000, 5, 5),
        ("openai", "gpt-6.1-sol", 272_000, 2, Decimal("1.5")),
        ("openai", "gpt-6.2-sol", 272_000, 2, Decimal("1.5")),
        ("xai", "grok-4.7", 199_999, 2, 2),
        ("minimax", "MiniMax-M3", 512_000, 2, 2),
    ],
)
def test_tiers_begin_strictly_above_the_threshold(
    book: PriceBook, provider: str, model: str, threshold: int, ratio: int, output_ratio: Decimal
) -> None:
    low = _card(book, provider, model, total_input=threshold)
    high = _card(book, provider, model, total_input=threshold + 1)
    assert (low.above, high.above) == (0, threshold)
    assert high.uncached == low.uncached * ratio
    assert high.read == low.read * ratio
    assert all(high.writes[ttl] == low.writes[ttl] * ratio for ttl in low.writes)
    assert high.output is not None
    assert low.output is not None
    assert high.output == low.output * output_ratio


def test_size_unknown_is_said(book: PriceBook) -> None:
    card = _card(book, "anthropic", "claude-haiku-5-5", total_input=None)
    assert card.above == 0
    assert "prompt size unknown" in (card.note or "")
    assert book.is_tiered("anthropic", "claude-haiku-5-5")
    assert not book.is_tiered("anthropic", "claude-opus-5-5")


def test_date_unknown_is_said_and_a_future_price_not_taken(book: PriceBook) -> None:
    card = _card(book, "google", "gemini-4-argon", at=None)
    assert card.undated
    assert "date unknown" in (card.note or "")
    assert card.uncached * MILLION == 2  # 4 from 2026-12-01
    december = _card(book, "google", "gemini-4-argon", at=parse_time("2026-12-01T00:00:00Z"))
    assert december.uncached * MILLION == 4
    assert not december.undated


@pytest.mark.parametrize(
    ("moment", "uncached"),
    [
        ("2026-11-30T00:59:59Z", "0.66"),
        ("2026-11-30T01:00:00Z", "1.32"),
        ("2026-11-30T03:59:59Z", "1.32"),
        ("2026-11-30T04:00:00Z", "0.66"),
        ("2026-11-30T06:00:00Z", "1.32"),
        ("2026-11-30T10:00:00Z", "0.66"),
        ("2026-11-27T09:00:00Z", "1.32"),  # Friday
        ("2026-11-28T02:00:00Z", "0.66"),  # Saturday
        ("2026-11-29T02:00:00Z", "0.66"),  # Sunday
        ("2026-08-22T02:00:00Z", "1.32"),  # Saturday, before weekends became off-peak
        ("2026-08-17T02:00:00Z", "1.32"),
        ("2026-08-16T02:00:00Z", "0.435"),
    ],
)
def test_deepseek_hours(book: PriceBook, moment: str, uncached: str) -> None:
    card = _card(book, "deepseek", "deepseek-v4-pro", at=parse_time(moment))
    assert card.uncached * MILLION == Decimal(uncached)


def test_peak_rows_have_an_id_of_their_own(book: PriceBook) -> None:
    peak = _card(book, "deepseek", "deepseek-flash", at=parse_time("2026-11-30T02:00:00Z"))
    calm = _card(book, "deepseek", "deepseek-flash", at=parse_time("2026-11-30T12:00:00Z"))
    assert peak.id == "deepseek/deepseek-flash@start/standard/01:00-04:00,06:00-10:00"
    assert calm.id == "deepseek/deepseek-flash@start/standard"


def test_us_inference_costs_a_tenth_more_on_46_and_later(book: PriceBook) -> None:
    usual = _card(book, "anthropic", "claude-opus-4-6")
    us = _card(book, "anthropic", "claude-opus-4-6", geo="us")
    for unit in ("uncached", "read", "output"):
        assert getattr(us, unit) == getattr(usual, unit) * Decimal("1.1")
    assert us.writes["1h"] == usual.writes["1h"] * Decimal("1.1")
    assert us.web_search == usual.web_search
    assert us.id == usual.id + "+us"
    old = _card(book, "anthropic", "claude-opus-4-5", geo="us")
    assert old.uncached == _card(book, "anthropic", "claude-opus-4-5").uncached
    for nowhere in ("global", "not_available", "", None):
        assert _card(book, "anthropic", "claude-opus-4-6", geo=nowhere).id == usual.id


def test_modifiers_stack(book: PriceBook) -> None:
    usual = _card(book, "anthropic", "claude-haiku-5-5", total_input=100_001)
    batch = _card(
        book, "anthropic", "claude-haiku-5-5", total_input=100_001, geo="us", service_tier="batch"
    )
    assert batch.uncached == usual.uncached * Decimal("0.55")
    fast = _card(book, "anthropic", "claude-opus-5-5", geo="us", speed="fast")
    assert fast.uncached * MILLION == Decimal("8.8")


def test_vertex_regions(book: PriceBook) -> None:
    worldwide = _card(book, "anthropic", "claude-opus-4-5", surface="google_cloud", geo="global")
    region = _card(book, "anthropic", "claude-opus-4-5", surface="google_cloud", geo="us-east5")
    assert worldwide.provider == "google"
    assert region.uncached == worldwide.uncached * Decimal("1.1")


def test_batch_is_half_even_where_no_row_says_so(book: PriceBook) -> None:
    old = parse_time("2025-06-01T00:00:00Z")
    usual = _card(book, "anthropic", "claude-3-5-haiku-20241022", at=old)
    batch = _card(book, "anthropic", "claude-3-5-haiku-20241022", at=old, service_tier="batch")
    assert batch.uncached * 2 == usual.uncached
    assert batch.writes["1h"] * 2 == usual.writes["1h"]
    assert "batch: 0.5 of the standard rate" in (batch.note or "")
    # The tiered price that Opus 4.6 had before 2026-03-13, also halved.
    at = parse_time("2026-03-01T00:00:00Z")
    tier = _card(
        book, "anthropic", "claude-opus-4-6", at=at, service_tier="batch", total_input=200_001
    )
    assert tier.uncached * MILLION == 5


def test_openai_service_tiers(book: PriceBook) -> None:
    rates = {
        tier: _card(book, "openai", "gpt-6-sol", service_tier=tier).uncached * MILLION
        for tier in ("default", "auto", "batch", "flex", "priority", "fast")
    }
    assert rates == {"default": 2, "auto": 2, "batch": 1, "flex": 1, "priority": 4, "fast": 4}
    assert _card(book, "openai", "gpt-6-sol", speed="fast").uncached * MILLION == 4


def test_an_undocumented_service_has_no_price(book: PriceBook) -> None:
    assert book.card("openai", "gpt-6-sol", NOV, service_tier="scale") is None
    assert "scale" in book.why_not("openai", "gpt-6-sol", service_tier="scale")
    assert book.card("anthropic", "claude-sonnet-5", NOV, speed="fast") is None


def test_priority_capacity_of_claude_is_at_list_price(book: PriceBook) -> None:
    card = _card(book, "anthropic", "claude-opus-5", service_tier="priority")
    assert card.uncached * MILLION == 5
    assert "contracted" in (card.note or "")


def test_azure_sells_at_the_makers_price(book: PriceBook) -> None:
    card = _card(book, "azure", "gpt-6-sol")
    assert card.provider == "openai"
    assert "served by azure" in (card.note or "")


def test_twelve_hour_writes(book: PriceBook) -> None:
    assert _card(book, "openai", "gpt-6.1-sol").write_rate("12h") == Decimal("0.000005")
    long = _card(book, "openai", "gpt-6.1-sol", total_input=300_000)
    assert long.write_rate("12h") == Decimal("0.00001")
    assert _card(book, "openai", "gpt-6-luna").write_rate("12h") is None


def test_no_write_price_means_ordinary_input(book: PriceBook) -> None:
    card = _card(book, "deepseek", "deepseek-v4-pro")
    assert set(card.writes.values()) == {card.uncached}
    assert "write_5m" not in card.per_million()


def test_rows_say_where_they_come_from(book: PriceBook) -> None:
    card = _card(book, "anthropic", "claude-opus-5-5")
    assert card.source
    assert card.checked == "2026-11-30"
    assert card.per_million() == {
        "uncached": "4",
        "read": "0.2",
        "write_5m": "5",
        "write_1h": "8",
        "output": "20",
        "web_search": "10",
    }


def test_ids_name_one_set_of_rates(book: PriceBook) -> None:
    """Sums are kept by card id, so two different cards must never share one."""
    seen: dict[str, RateCard] = {}
    moments = [None, NOV, parse_time("2026-11-30T02:00:00Z"), parse_time("2025-07-01T00:00:00Z")]
    for name in builtin_names():
        table = book.table(name)
        assert table is not None
        if name == "openrouter":
            continue
        for model in table.models:
            for tier in (None, "batch", "flex", "priority"):
                for geo in (None, "us", "eu-west1"):
                    for at in moments:
                        for size in (1, 10**7):
                            card = book.card(
                                name, model, at, service_tier=tier, geo=geo, total_input=size
                            )
                            if card is not None:
                                other = seen.setdefault(card.id, card)
                                assert other.uncached == card.uncached, card.id
                                assert other.writes == card.writes, card.id
                                assert other.output == card.output, card.id
    assert len(seen) > 1_000


@given(st.floats(min_value=0, max_value=4e9), st.integers(0, 2_000_000))
def test_look_up_agrees_with_a_plain_search(at: float, size: int) -> None:
    """Bisection over windows, hours and tiers against reading every row."""
    book = BOOK
    for name, model in (("deepseek", "deepseek-v4-flash"), ("anthropic", "claude-opus-4-6")):
        table = book.table(name)
        assert table is not None
        weekday, minute = (int(at // 86_400) + 3) % 7, int(at % 86_400) // 60
        rows = [
            row
            for row in table.model(model).rows
            if row.when == "standard"
            and (row.valid_from is None or midnight(row.valid_from) <= at)
            and (row.valid_to is None or at < midnight(row.valid_to))
            and (not row.above or size > row.above)
            and (not row.hours or any(h.holds(minute, weekday) for h in row.hours))
        ]
        best = max(rows, key=lambda row: (bool(row.hours), row.above))
        card = book.card(name, model, at, total_input=size)
        assert card is not None
        assert card.uncached * MILLION == best.rates["uncached"]
        assert card.read * MILLION == best.rates["read"]


@given(st.text(max_size=40))
def test_names_never_fail_and_start_with_what_was_given(text: str) -> None:
    forms = list(candidates(text))
    assert forms[0] == text.strip().lower()
    assert len(forms) == len(set(forms))
    assert BOOK.card("anthropic", text, None) is None or "claude" in text.lower()
