"""Our tables against genai-prices: equal, or different for a reason that is written down.

``differences.toml`` holds the reasons. A difference without one fails, and so does a reason that
no longer explains any difference.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.genai_source import PROVIDER_IDS
from cacheaudit.pricing.table import builtin_names

MILLION = Decimal(1_000_000)
TODAY = dt.date(2026, 11, 30)  # a Monday
CONTEXTS: dict[str, dict[str, str]] = {
    "standard": {},
    "batch": {"processing": "batch"},
    "fast": {"speed": "fast"},
    "flex": {"service_tier": "flex"},
    "priority": {"service_tier": "priority"},
}
OURS: dict[str, dict[str, str]] = {
    "standard": {},
    "batch": {"service_tier": "batch"},
    "fast": {"speed": "fast"},
    "flex": {"service_tier": "flex"},
    "priority": {"service_tier": "priority"},
}
# Billed by characters, pages or seconds: nothing for a price of tokens.
NOT_BY_TOKEN = ("whisper", "ocr", "moderation")


class Difference(NamedTuple):
    table: str
    model: str
    kind: str
    day: dt.date
    hour: int
    unit: str
    ours: Decimal | None
    theirs: Decimal | None


def _probes(model: Any) -> Iterator[dt.datetime]:
    conditions = model.prices if isinstance(model.prices, list) else []
    rules = [c.constraint for c in conditions]
    rules += [v.constraint for v in model.price_variants or ()]
    # Days on which a price of our own begins or ends, beside those that genai-prices knows.
    days = {TODAY, dt.date(2026, 10, 6), dt.date(2026, 10, 7), dt.date(2026, 4, 1)}
    for rule in rules:
        if start := getattr(rule, "start_date", None):
            days |= {start, start - dt.timedelta(days=1)}
    hourly = any(hasattr(rule, "start_time") for rule in rules)
    if hourly:
        days |= {TODAY - dt.timedelta(days=2), TODAY - dt.timedelta(days=3)}  # Saturday, Friday
    for day in sorted(days):
        for hour in (2, 5, 8, 23) if hourly else (12,):
            yield dt.datetime.combine(day, dt.time(hour), tzinfo=dt.UTC)


def _sizes(price: Any) -> list[int]:
    starts = {t.start for v in vars(price).values() for t in getattr(v, "tiers", ())}
    return sorted({1_000, 200_001, *starts, *(start + 1 for start in starts)})


def _at(value: Any, size: int) -> Decimal | None:
    if value is None or isinstance(value, Decimal):
        return value
    price = value.base
    for tier in value.tiers:
        if size > tier.start:
            price = tier.price
    return price


def _theirs(price: Any, size: int) -> dict[str, Decimal | None]:
    values = {key: _at(value, size) for key, value in vars(price).items()}
    values = {key: value for key, value in values.items() if value is not None}
    if not values:
        values = {"input_mtok": Decimal(0), "output_mtok": Decimal(0)}
    plain = values.get("input_mtok")
    return {
        "uncached": plain,
        "read": values.get("cache_read_mtok", plain),
        "write": values.get("cache_write_mtok", plain),
        "1h": values.get("cache_write_1h_mtok"),
        "output": values.get("output_mtok"),
    }


def _knows(model: Any, kind: str, moment: dt.datetime) -> bool:
    """Whether genai-prices has this kind of price then; else it would give the ordinary one."""
    return any(
        v.when == CONTEXTS[kind] and (v.constraint is None or v.constraint.active(moment))
        for v in model.price_variants or ()
    )


def _compare(book: PriceBook, table: str, name: str, model: Any, kind: str) -> Iterator[Difference]:
    for moment in _probes(model):
        if kind != "standard" and not _knows(model, kind, moment):
            continue
        price = model.get_prices(moment, CONTEXTS[kind] or None)
        if vars(price) and price.input_mtok is None:
            continue
        for size in _sizes(price):
            theirs = _theirs(price, size)
            card = book.card(table, name, moment.timestamp(), total_input=size, **OURS[kind])
            where = (table, name, kind, moment.date(), moment.hour)
            if card is None:
                yield Difference(*where, "missing", None, theirs["uncached"])
                continue
            ours = {
                "uncached": card.uncached,
                "read": card.read,
                "write": card.write_rate(None),
                "1h": card.writes.get("1h") if theirs["1h"] is not None else None,
                "output": card.output,
            }
            for unit, rate in ours.items():
                mine = None if rate is None else rate * MILLION
                if mine != theirs[unit]:
                    yield Difference(*where, unit, mine, theirs[unit])


def _names(table: str, provider: Any, model: Any) -> Iterator[str]:
    """Names that stand for this model in genai-prices and could be in a record."""
    clauses = [model.match, *(getattr(model.match, "or_", None) or ())]
    for name in {model.id, *(c.equals for c in clauses if hasattr(c, "equals"))}:
        if provider.find_model(name) is model and not name.startswith("/"):
            yield name


def _all(book: PriceBook) -> Iterator[Difference]:
    data = pytest.importorskip("genai_prices.data")
    providers = {p.id: p for p in data.providers}
    for table in builtin_names():
        if table == "qwen":  # made from OpenRouter's rows, which are compared there
            continue
        provider = providers[PROVIDER_IDS.get(table, table)]
        for model in provider.models:
            if any(word in model.id for word in NOT_BY_TOKEN):
                continue
            variants = [v.when for v in model.price_variants or ()]
            for kind, context in CONTEXTS.items():
                if kind == "standard" or context in variants:
                    for name in _names(table, provider, model):
                        yield from _compare(book, table, name, model, kind)


@pytest.fixture(scope="module")
def book() -> PriceBook:
    return PriceBook(genai_prices=False)


@pytest.fixture(scope="module")
def found(book: PriceBook) -> list[Difference]:
    return list(_all(book))


@pytest.fixture(scope="module")
def reasons() -> list[dict[str, Any]]:
    path = Path(__file__).with_name("differences.toml")
    return tomllib.loads(path.read_text("utf-8"))["difference"]


def _explains(reason: dict[str, Any], one: Difference) -> bool:
    if reason["table"] != one.table and reason["table"] != "*":
        return False
    if not any(fnmatchcase(one.model.lower(), pattern) for pattern in reason["models"]):
        return False
    if one.kind not in reason.get("kinds", [one.kind]):
        return False
    if one.unit not in reason.get("units", [one.unit]):
        return False
    if "before" in reason and one.day >= reason["before"]:
        return False
    if "since" in reason and one.day < reason["since"]:
        return False
    return not ("weekend" in reason and (one.day.weekday() >= 5) != reason["weekend"])


def test_every_difference_has_a_reason(
    found: list[Difference], reasons: list[dict[str, Any]]
) -> None:
    unexplained = [one for one in found if not any(_explains(r, one) for r in reasons)]
    assert not unexplained, "\n".join(map(str, unexplained[:40]))


def test_every_reason_still_explains_something(
    found: list[Difference], reasons: list[dict[str, Any]]
) -> None:
    stale = [r["why"] for r in reasons if not any(_explains(r, one) for one in found)]
    assert not stale


def test_reasons_are_sentences(reasons: list[dict[str, Any]]) -> None:
    for reason in reasons:
        assert len(reason["why"]) > 30
        assert reason["models"]


def test_enough_was_compared(book: PriceBook) -> None:
    data = pytest.importorskip("genai_prices.data")
    providers = {p.id: p for p in data.providers}
    wanted = 0
    for table in ("anthropic", "openai", "deepseek", "google", "moonshot", "zai", "xai", "minimax"):
        for model in providers[PROVIDER_IDS.get(table, table)].models:
            price = model.get_prices(dt.datetime(2026, 11, 30, tzinfo=dt.UTC))
            if vars(price).get("input_mtok") is not None:
                wanted += 1
                assert book.card(table, model.id, None) is not None, f"{table}/{model.id}"
    assert wanted > 230
