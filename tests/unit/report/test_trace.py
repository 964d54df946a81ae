from __future__ import annotations

from decimal import Decimal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.model.money import plain
from cacheaudit.report.result import PriceUsed
from cacheaudit.report.trace import Bill
from tests.unit.report import samples

MILLION = Decimal(1_000_000)
RATES = {"uncached": "3", "read": "0.3", "write_5m": "3.75", "write_1h": "6", "output": "15"}
PRICE = PriceUsed("row", "anthropic", samples.MODEL, "USD", RATES, None, "source", "2026-11-20")
COUNTS = st.integers(0, 200_000)


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_amounts_come_apart_exactly(
    uncached: int, read: int, short: int, long: int, output: int
) -> None:
    tokens = {
        "uncached": uncached,
        "read": read,
        "write_5m": short,
        "write_1h": long,
        "output": output,
    }
    cost = sum((Decimal(RATES[name]) * count for name, count in tokens.items()), Decimal(0))
    row = msgspec.structs.replace(
        samples.calls()[0],
        uncached_input=uncached,
        cache_read=read,
        cache_write=short + long,
        writes={"5m": short, "1h": long},
        output=output,
        cost=plain(cost / MILLION),
        price=None,
    )
    bill = Bill([PRICE])
    parts = bill.take(row)
    assert parts is not None
    assert sum(parts.values(), Decimal(0)) == cost / MILLION
    assert {line.part: line.tokens for line in bill.lines} == {k: v for k, v in tokens.items() if v}
    assert sum((line.amount for line in bill.lines), Decimal(0)) == cost / MILLION
    assert bill.rest_calls == 0


def test_a_lifetime_that_is_not_recorded_is_the_one_that_was_billed() -> None:
    row = msgspec.structs.replace(
        samples.calls()[0], writes=None, cache_write=1_000, output=0, cost="0.006", price=None
    )
    bill = Bill([PRICE])
    assert bill.take(row) == {"write_1h": Decimal("0.006")}
    assert bill.price_of(row) == "row"


def test_what_does_not_come_out_is_kept_whole() -> None:
    row = msgspec.structs.replace(samples.calls()[0], cost="0.1234")
    bill = Bill([PRICE])
    assert bill.take(row) is None
    assert (bill.rest, bill.rest_calls, bill.lines) == (Decimal("0.1234"), 1, [])


def test_a_call_without_a_cost_is_no_part_of_the_bill() -> None:
    bill = Bill([PRICE])
    assert bill.take(msgspec.structs.replace(samples.calls()[0], cost=None)) is None
    assert bill.rest_calls == 0
