"""Turns a model of ``genai-prices`` into price rows.

Nothing of that package is imported here: its objects are handed in, so that both the script that
writes our tables and the optional source at run time use this one reading of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

RowDict = dict[str, Any]

CONTEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "standard": {},
    "batch": {"processing": "batch"},
    "fast": {"speed": "fast"},
    "flex": {"service_tier": "flex"},
    "priority": {"service_tier": "priority"},
}
_FIELDS: Final = {
    "input_mtok": "uncached",
    "cache_read_mtok": "read",
    "output_mtok": "output",
    "web_searches_kcount": "web_search",
    "cache_write_1h_mtok": "write_1h",
}


class Span(NamedTuple):
    """Days from ``low`` (``None``: always) to ``high`` (exclusive; ``None``: until now)."""

    low: dt.date | None
    high: dt.date | None


def write_ttl(table: str, model_id: str) -> str:
    """Return the lifetime that the one write price of ``genai-prices`` is for."""
    lowered = model_id.lower()
    if "gpt" in lowered or "openai" in lowered:
        return "30m"
    if table == "bedrock" and ("kimi" in lowered or "glm" in lowered):
        return "30m"
    return "5m"


def rows_of(table: str, model: Any) -> list[RowDict]:
    """Return rows for every stretch of dates, kind of service, hour and prompt size.

    Models that are not billed by the token give none.
    """
    conditions = model.prices if isinstance(model.prices, list) else []
    if any(hasattr(c.constraint, "start_time") for c in conditions):
        return list(_hourly_rows(table, model, conditions))
    dates = {c.constraint.start_date for c in conditions if hasattr(c.constraint, "start_date")}
    edges = [None, *sorted(dates)]
    spans = [Span(*pair) for pair in zip(edges, [*edges[1:], None], strict=True)]
    rows: list[RowDict] = []
    for kind, context in CONTEXTS.items():
        if kind != "standard" and not _variants(model, context):
            continue
        for span, price in _merged(model, spans, context):
            rows.extend(_tier_rows(table, model, kind, span, price))
    return rows


def _variants(model: Any, context: Mapping[str, str]) -> list[Any]:
    return [variant for variant in model.price_variants or () if variant.when == context]


def _merged(model: Any, spans: list[Span], context: Mapping[str, str]) -> list[tuple[Span, Any]]:
    """Join neighbouring stretches of dates that have the same price."""
    found: list[tuple[Span, Any]] = []
    for span in spans:
        price = _price_in(model, span, context)
        if price is None:
            continue
        if found and found[-1][0].high == span.low and found[-1][1] == price:
            found[-1] = (Span(found[-1][0].low, span.high), price)
        else:
            found.append((span, price))
    return found


def _price_in(model: Any, span: Span, context: Mapping[str, str]) -> Any:
    """Return the price in a stretch of dates, ``None`` where there is none.

    A variant is often dated by the day on which it was verified. The standard price did not change
    within the stretch, so a variant known on any day of it is taken for all of it.
    """
    variants = _variants(model, context)
    days = [span.low or dt.date(2000, 1, 1)]
    for variant in variants:
        start = getattr(variant.constraint, "start_date", None)
        if start and (not span.low or start > span.low) and (not span.high or start < span.high):
            days.append(start)
    for day in sorted(days):
        moment = dt.datetime.combine(day, dt.time(12), tzinfo=dt.UTC)
        active = any(v.constraint is None or v.constraint.active(moment) for v in variants)
        if active or not context:
            return model.get_prices(moment, dict(context) or None)
    return None


def _tier_rows(table: str, model: Any, kind: str, span: Span, price: Any) -> Iterator[RowDict]:
    values = {k: v for k, v in vars(price).items() if v is not None}
    if not values:  # free of charge
        values = {"input_mtok": Decimal(0), "output_mtok": Decimal(0)}
    if "input_mtok" not in values:
        return
    starts = {tier.start for v in values.values() for tier in getattr(v, "tiers", ())}
    fields = {**_FIELDS, "cache_write_mtok": f"write_{write_ttl(table, model.id)}"}
    for above in [0, *sorted(starts)]:
        row: RowDict = {} if kind == "standard" else {"when": kind}
        if span.low:
            row["from"] = span.low
        if span.high:
            row["to"] = span.high
        if above:
            row["above"] = above
        for field, unit in fields.items():
            if field in values:
                row[unit] = _at_tier(values[field], above)
        row["source"] = "g"
        yield row


def _at_tier(value: Any, above: int) -> Any:
    if isinstance(value, Decimal):
        return value
    price = value.base
    for tier in value.tiers:
        if above >= tier.start:
            price = tier.price
    return price


def _hourly_rows(table: str, model: Any, conditions: list[Any]) -> Iterator[RowDict]:
    """Yield an all-day row and one for each price that holds at certain hours."""
    whole = Span(None, None)
    day = [c for c in conditions if not hasattr(c.constraint, "start_time")]
    yield from _tier_rows(table, model, "standard", whole, day[-1].prices)
    groups: list[tuple[Any, list[str]]] = []
    for condition in conditions:
        rule = condition.constraint
        if not hasattr(rule, "start_time"):
            continue
        text = f"{rule.start_time:%H:%M}-{rule.end_time:%H:%M}"
        for price, hours in groups:
            if price == condition.prices:
                hours.append(text)
                break
        else:
            groups.append((condition.prices, [text]))
    for price, hours in groups:
        for row in _tier_rows(table, model, "standard", whole, price):
            yield {"hours": " ".join(hours), **row}
