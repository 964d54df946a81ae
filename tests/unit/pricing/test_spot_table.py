"""Every figure that the fact files state: the spot table, the vectors, the bug bank."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.model.call import Call
from cacheaudit.model.clock import parse_time
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.cost import price_call

NOON = parse_time("2026-11-30T12:00:00Z")
PEAK = parse_time("2026-11-30T02:00:00Z")  # a Monday

COLUMNS = {
    "anthropic": ("uncached", "read", "5m", "1h", "output"),
    "openai": ("uncached", "read", "30m", "12h", "output"),
    "deepseek_offpeak": ("uncached", "read", None, None, "output"),
    "deepseek_peak": ("uncached", "read", None, None, "output"),
    "moonshot": ("uncached", "read", "5m", "1h", "output"),
    "gemini": ("uncached", "read", None, None, "output"),
    "xai": ("uncached", "read", None, None, "output"),
}


@pytest.fixture(scope="module")
def book() -> PriceBook:
    return PriceBook()


@pytest.fixture(scope="module")
def rules(shared: Path) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    # BaseLoader keeps every number as the text that it was written as.
    text = (shared / "facts" / "provider_rules.yaml").read_text("utf-8")
    return yaml.load(text, Loader=yaml.BaseLoader)


def _rates(book: PriceBook, section: str, model: str) -> dict[str, Decimal | None]:
    provider = section.partition("_")[0]
    at = PEAK if section.endswith("_peak") else NOON
    card = book.card(provider, model, at, total_input=1_000)
    assert card is not None, f"{provider}/{model}"
    return {
        "uncached": card.uncached,
        "read": card.read,
        "output": card.output,
        **{ttl: card.writes.get(ttl) for ttl in ("5m", "1h", "30m", "12h")},
    }


@pytest.mark.shared
def test_every_row_of_the_spot_table(rules: dict[str, Any], book: PriceBook) -> None:
    seen = 0
    for section, columns in COLUMNS.items():
        for model, row in rules["prices_usd_per_mtok"][section].items():
            rates = _rates(book, section, model)
            for unit, text in zip(columns, row, strict=True):
                # A zero write price stands for "not charged": such tokens are ordinary input.
                if unit is None or text == "null" or (text == "0" and unit == "30m"):
                    continue
                assert rates[unit] == Decimal(text) / 1_000_000, (section, model, unit)
                seen += 1
    assert seen > 120


@pytest.mark.shared
def test_no_section_of_the_spot_table_is_left_out(rules: dict[str, Any]) -> None:
    sections = set(rules["prices_usd_per_mtok"]) - {"as_of", "sources", "agree"}
    assert sections == set(COLUMNS)


@pytest.mark.shared
def test_every_read_multiplier_exception(rules: dict[str, Any], book: PriceBook) -> None:
    exceptions = rules["providers"]["anthropic"]["read_multiplier_exceptions"]
    for model, ratio in exceptions.items():
        wanted = ratio if isinstance(ratio, str) else ratio["from_2026-10-07"]
        card = book.card("anthropic", model, NOON)
        assert card is not None
        assert card.read_ratio == Decimal(wanted), model


@pytest.mark.shared
def test_every_fast_mode_price(rules: dict[str, Any], book: PriceBook) -> None:
    modes = rules["providers"]["anthropic"]["price_modifiers"]["fast_mode_usd_per_mtok"]
    at = parse_time("2026-11-20T00:00:00Z")
    for model, pair in modes.items():
        if model == "note":
            continue
        fast = book.card("anthropic", model, at, speed="fast")
        usual = book.card("anthropic", model, at)
        assert fast is not None
        assert usual is not None
        assert [fast.uncached, fast.output] == [Decimal(p) / 1_000_000 for p in pair], model
        for ttl in ("5m", "1h"):  # cache multipliers stack on top
            assert fast.write_ratio(ttl) == usual.write_ratio(ttl)
        assert fast.read_ratio == usual.read_ratio


@pytest.mark.shared
def test_price_vectors(rules: dict[str, Any], book: PriceBook) -> None:
    vectors = {v["id"]: v for v in rules["test_vectors"] if v["rule"] == "price"}
    assert set(vectors) == {"haiku55-tier", "opus55-split"}

    tier = vectors["haiku55-tier"]
    read, write, output = (int(tier[k]) for k in ("read", "write_5m", "output"))
    for prompt, wanted in ((int(tier["prompt"]), tier["usd"]), (100_000, tier["at_100000_usd"])):
        usage = Usage(
            total_input=prompt,
            uncached_input=prompt - read - write,
            cache_read=read,
            write_5m=write,
            output=output,
        )
        assert _price(book, "claude-haiku-5-5", usage) == Decimal(wanted)

    split = vectors["opus55-split"]
    counts = {
        "uncached_input": int(split["fresh"]),
        "cache_read": int(split["read"]),
        "write_5m": int(split["write_5m"]),
        "write_1h": int(split["write_1h"]),
    }
    for speed, wanted in ((None, split["usd"]), ("fast", split["fast_usd"])):
        usage = Usage(
            **counts,
            total_input=sum(counts.values()),
            output=int(split["output"]),
            web_searches=int(split["web_searches"]),
            speed=speed,
        )
        assert _price(book, "claude-opus-5-5", usage) == Decimal(wanted)


def test_the_same_mixed_request_in_a_batch(book: PriceBook) -> None:
    usage = Usage(
        total_input=103_050,
        uncached_input=50,
        cache_read=100_000,
        write_5m=1_000,
        write_1h=2_000,
        output=500,
        web_searches=2,
        service_tier="batch",
    )
    assert _price(book, "claude-opus-5-5", usage) == Decimal("0.0456")


# --- bug bank, section A -------------------------------------------------------------------------


def test_a15_writes_of_both_lifetimes_at_their_own_price(book: PriceBook) -> None:
    usage = Usage(
        total_input=1_000_000,
        uncached_input=0,
        cache_read=0,
        write_5m=600_000,
        write_1h=400_000,
        output=0,
    )
    assert _price(book, "claude-opus-4-8", usage) == Decimal("7.75")


def test_a19_haiku_35_read_is_not_billed_as_input(book: PriceBook) -> None:
    usage = Usage(total_input=2_459, uncached_input=4, cache_read=2_455, output=23)
    at = parse_time("2025-06-17T00:00:00Z")
    amount = _price(book, "claude-3-5-haiku-20241022", usage, at=at)
    assert amount == Decimal("0.0002916")
    assert round(amount, 6) == Decimal("0.000292")


def test_a20_almost_all_cached(book: PriceBook) -> None:
    usage = Usage(total_input=27_147, uncached_input=1, cache_read=27_146, output=351)
    amount = _price(book, "glm-5.2", usage, provider="zai")
    assert amount == Decimal("0.00860376")


def test_a26_tier_also_raises_the_read_price(book: PriceBook) -> None:
    at = parse_time("2026-01-15T00:00:00Z")
    usage = Usage(total_input=250_000, uncached_input=10_000, cache_read=240_000, output=0)
    cost = price_call(_call("claude-sonnet-4-20250514", usage, at=at), book)
    by_unit = {line.unit: line.amount for line in cost.lines}
    assert by_unit["read"] == Decimal("0.144")
    assert by_unit["uncached"] == Decimal("0.06")


def test_a31_misses_and_hits_each_at_their_price(book: PriceBook) -> None:
    hit, miss = 900_000, 100_000
    usage = Usage(total_input=hit + miss, uncached_input=miss, cache_read=hit, output=10_000)
    # Off-peak: 0.66, 0.022 and 1.98 a million.
    wanted = Decimal("0.066") + Decimal("0.0198") + Decimal("0.0198")
    assert _price(book, "deepseek-v4-pro", usage, provider="deepseek") == wanted


def _call(
    model: str, usage: Usage, *, provider: str = "anthropic", at: float | None = NOON
) -> Call:
    return Call(id="c", provider=provider, model=model, started_at=at, usage=usage)


def _price(book: PriceBook, model: str, usage: Usage, **given: Any) -> Decimal:
    cost = price_call(_call(model, usage, **given), book)
    assert cost.amount is not None, cost.reason
    assert cost.amount == sum(line.amount for line in cost.lines)
    return cost.amount
