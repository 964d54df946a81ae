from __future__ import annotations

import pytest

from cacheaudit.report import format as fmt
from cacheaudit.report.cells import ledger
from cacheaudit.report.result import CostTotal, Group, Totals


@pytest.mark.parametrize(
    ("reported_calls", "unpriced", "shown"),
    [(4, 0, "-$0.50"), (3, 0, fmt.DASH), (4, 1, fmt.DASH)],
)
def test_a_difference_needs_both_costs_of_every_call(
    reported_calls: int, unpriced: int, shown: str
) -> None:
    cost = CostTotal("3.00", "2.50", "USD", unpriced, reported_calls=reported_calls)
    table = ledger("Model", [Group("m", Totals(calls=4, cost=cost))])
    stated, difference = table.rows[0].cells[-2:]
    assert stated.text == "$2.50"
    assert difference.text == shown
