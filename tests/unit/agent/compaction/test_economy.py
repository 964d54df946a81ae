"""Prices of the three stages, by hand; when a compaction is worth it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.agent.compaction.decide import decide, occasion
from cacheaudit.agent.compaction.economy import CardOf, Shape, break_even, priced
from cacheaudit.agent.compaction.request import prefix_request, standalone_request
from cacheaudit.agent.compaction.settings import Clearing, Compaction, Heading, Structure
from cacheaudit.errors import ConfigError
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.card import RateCard
from cacheaudit.providers.registry import expand
from tests.unit.agent.compaction.histories import MODEL, body, rounds

AT = 1_795_996_800.0
BOOK = PriceBook()
# 200,000 tokens of which 195,000 are stored; 20,000 of tools and system; 12,000 would be left.
SHAPE = Shape(
    size=200_000,
    stored=195_000,
    front=20_000,
    front_stored=True,
    older=180_000,
    after=12_000,
    growth=2_000,
)


def cards(model: str = MODEL) -> CardOf:
    def card_of(other: str | None, size: int) -> RateCard | None:
        return BOOK.card("anthropic", other or model, AT, total_input=size)

    return card_of


def shape(**changes: Any) -> Shape:
    return msgspec.structs.replace(SHAPE, **changes)


def micro(amount: Decimal) -> Decimal:
    """Millionths of a dollar: Opus 5 takes 5 a token, 0.5 read, 6.25 written, 25 put out."""
    return amount * 1_000_000


def test_stages_of_a_warm_conversation() -> None:
    keep = priced("keep", SHAPE, cards())
    assert micro(keep.first) == Decimal(128750)  # 195,000 read, 5,000 written
    assert (keep.summary, keep.later) == (0, 0)
    made = priced("prefix", SHAPE, cards())
    # 195,000 read, 5,250 uncached, 1,500 put out.
    assert micro(made.summary) == 97_500 + 26_250 + 37_500
    assert made.size == 32_000
    assert micro(made.first) == 10_000 + 75_000
    later = priced("prefix", shape(turns=3), cards()).later
    assert micro(later) == (32_000 + 34_000) * Decimal("0.5") + 2 * 2_000 * Decimal("6.25")


def test_compacting_while_warm_costs_now_and_pays_off_at_the_third_request() -> None:
    """Bug bank C06, warm."""
    assert priced("prefix", SHAPE, cards()).total > priced("keep", SHAPE, cards()).total
    assert break_even("prefix", SHAPE, cards()) == 3
    naive = next(
        n
        for n in range(100)
        if priced("prefix", shape(turns=n), cards()).total
        < priced("keep", shape(turns=n), cards()).total
    )
    assert naive == 3


def test_compacting_what_has_expired_is_cheaper_at_once() -> None:
    """Bug bank C06, expired."""
    cold = shape(warm=False)
    made, keep = priced("prefix", cold, cards()), priced("keep", cold, cards())
    assert micro(keep.total) == 1_250_000
    # The front is written by the summary request and read by the next one.
    assert micro(made.summary) == 125_000 + 901_250 + 37_500
    assert micro(made.first) == 85_000
    assert made.total < keep.total
    assert break_even("prefix", cold, cards()) == 1


def test_compacting_before_expiry_depends_on_the_return() -> None:
    """Bug bank C06, near expiry."""
    for turns, is_worth_it in ((1, False), (3, True)):
        idle = shape(pause=True, probability=Decimal("0.15"), turns=turns)
        made, keep = priced("prefix", idle, cards()), priced("keep", idle, cards())
        assert (made.total < keep.total) is is_worth_it
    assert micro(keep.total) == Decimal("0.15") * 1_476_000
    assert micro(made.total) == 161_250 + Decimal("0.15") * 258_000


def test_a_summary_request_without_the_prefix_pays_for_all_of_it() -> None:
    """Bug bank C01 and C02: 235,000 tokens at the full rate, or read for a tenth."""
    big = shape(size=235_000, stored=235_000, older=235_000 - 250, front=0, summary=0)
    alone, behind = priced("standalone", big, cards()), priced("prefix", big, cards())
    assert micro(alone.summary) == 235_000 * 5
    assert micro(behind.summary) == 235_000 * Decimal("0.5") + 250 * 5
    request = body(rounds(3, 600))
    structure = Structure()
    before = expand(request, provider="anthropic").prefix_digests
    bare = standalone_request(request, structure, 900, request["messages"])
    assert not set(expand(bare, provider="anthropic").prefix_digests) & set(before)
    kept = prefix_request(request, structure, 900)
    assert expand(kept, provider="anthropic").prefix_digests[: len(before)] == before


def test_clearing_writes_anew_what_follows() -> None:
    made = priced("clear", shape(freed=50_000, turns=2), cards())
    assert made.summary == 0
    assert micro(made.first) == 20_000 * Decimal("0.5") + 130_000 * Decimal("6.25")
    assert micro(made.later) == 150_000 * Decimal("0.5") + 2_000 * Decimal("6.25")


def test_price_tiers_count() -> None:
    """Haiku 5.5 costs more beyond 100,000 tokens: going on below it is worth more."""
    known = cards("claude-haiku-4-5")
    tiered = cards("claude-haiku-5-5")
    gain = {
        name: priced("keep", shape(turns=5), card).total
        / priced("prefix", shape(turns=5), card).total
        for name, card in (("flat", known), ("tiered", tiered))
    }
    assert gain["tiered"] > gain["flat"]


def test_a_conversation_that_is_not_cached() -> None:
    bare = shape(stored=0, turns=2)
    assert micro(priced("keep", bare, cards()).total) == (200_000 + 202_000) * 5
    assert micro(priced("prefix", bare, cards()).first) == 32_000 * 5


@settings(max_examples=60)
@given(
    turns=st.integers(1, 40),
    growth=st.integers(0, 5_000),
    after=st.integers(1_000, 150_000),
    is_warm=st.booleans(),
)
def test_break_even_equals_a_naive_search(
    turns: int, growth: int, after: int, is_warm: bool
) -> None:
    mine = shape(growth=growth, after=after, warm=is_warm)
    found = break_even("prefix", mine, cards())
    one = msgspec.structs.replace(mine, turns=turns)
    is_cheaper = priced("prefix", one, cards()).total < priced("keep", one, cards()).total
    assert is_cheaper is (found is not None and turns >= found)


@pytest.mark.parametrize(
    ("size", "flags", "found"),
    [
        (150_000, {"warm": True}, "none"),
        (150_001, {"warm": True}, "threshold"),
        (1_000, {"warm": False}, "cold"),
        (1_000, {"warm": True, "manual": True}, "manual"),
        (184_000, {"warm": True}, "window"),
        (150_001, {"warm": True, "idle": True}, "before_expiry"),
    ],
)
def test_occasions(size: int, flags: dict[str, bool], found: str) -> None:
    every = Compaction(when=("threshold", "cold", "before_expiry"), window=200_000)
    assert occasion(size, every, **flags) == found  # type: ignore[arg-type]
    none = Compaction(when="threshold", at=10**9)
    assert occasion(1_000, none, warm=False) == "none"
    assert occasion(1_000, none, warm=True, idle=True) == "none"


def test_never_while_warm_without_gain() -> None:
    plan = Compaction(at=100_000)
    few = decide(shape(turns=2), plan, "threshold", cards())
    assert (few.action, few.reason, few.break_even) == ("keep", "not_worth_it", 3)
    assert few.gain is not None
    assert few.gain < 0
    many = decide(shape(turns=20), plan, "threshold", cards())
    assert (many.action, many.reason) == ("prefix", "worth_it")
    assert many.keep is not None
    assert many.best is not None
    assert many.gain == many.keep.total - many.best.total
    cold = decide(shape(turns=1, warm=False), plan, "cold", cards())
    assert cold.action == "prefix"
    dear = Compaction(at=100_000, min_savings=Decimal(100))
    assert decide(shape(turns=20), dear, "threshold", cards()).action == "keep"


def test_the_cheapest_way_is_taken() -> None:
    both = Compaction(mode=("prefix", "standalone"), standalone_model="claude-haiku-4-5")
    warm = decide(shape(turns=20), both, "threshold", cards())
    assert warm.action == "prefix"
    assert {way.mode for way in warm.options} == {"prefix", "standalone"}
    # Cold, reading nothing, the fifth of the price decides.
    cold = shape(turns=20, warm=False, standalone_model="claude-haiku-4-5")
    assert decide(cold, both, "cold", cards()).action == "standalone"


def test_what_must_be_is_done_at_any_price() -> None:
    plan = Compaction()
    for why in ("window", "manual"):
        made = decide(shape(turns=1), plan, why, cards())  # type: ignore[arg-type]
        assert (made.action, made.reason) == ("prefix", why)
        blind = decide(shape(turns=1), plan, why, lambda *_: None)  # type: ignore[arg-type]
        assert (blind.action, blind.keep) == ("prefix", None)
    assert decide(shape(), plan, "cold", lambda *_: None).reason == "price_unknown"
    assert decide(shape(older=0), plan, "manual", cards()).reason == "nothing_older"
    assert decide(shape(older=500), plan, "cold", cards()).reason == "too_small"


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "magic"},
        {"mode": ()},
        {"when": "never"},
        {"at": -1},
        {"window": 1_000},
        {"attempts": 0},
        {"remaining_turns": -1},
        {"return_probability": 1.5},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Compaction(**wrong)


def test_more_settings_that_make_no_sense() -> None:
    with pytest.raises(ConfigError):
        Clearing(at_least=0)
    with pytest.raises(ConfigError):
        Structure(headings=())
    with pytest.raises(ConfigError):
        Structure(headings=(Heading(" ", "x"),))
