from __future__ import annotations

import pytest

from cacheaudit.report import format as fmt
from cacheaudit.report.cells import ledger
from cacheaudit.report.groups import group_cells
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


@pytest.mark.parametrize(
    ("weight", "unweighted", "shown"),
    [("1234.5", 0, "1,235"), ("1234.5", 2, "≥ 1,235"), (None, 4, fmt.DASH)],
)
def test_the_weight_stands_beside_the_money(
    weight: str | None, unweighted: int, shown: str
) -> None:
    cost = CostTotal(None, None, "USD", 4)
    some = Totals(calls=4, input_equivalents=weight, unweighted_calls=unweighted, cost=cost)
    other = Totals(calls=1, input_equivalents="5", cost=cost)
    assert group_cells([Group("m", some)])[0][-2:] == (shown, fmt.DASH)
    table = ledger("Model", [Group("m", some), Group("n", other)])
    assert table.heads[-2:] == ("Weighted", "Cost")
    assert [row.cells[-2].text for row in table.rows] == [shown, "5"]


def test_a_table_has_a_cell_under_every_head() -> None:
    for stated in (None, "1.00"):
        for weight in (None, "5"):
            cost = CostTotal("1.00", stated, "USD", 0)
            some = Totals(calls=4, input_equivalents=weight, cost=cost)
            table = ledger("Day", [Group("m", some)])
            assert len(table.heads) == len(table.rows[0].cells)
            assert ("Weighted" in table.heads) == (weight is not None)
