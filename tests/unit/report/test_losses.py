from __future__ import annotations

from decimal import Decimal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.report.ledger import Agreement, Ledger
from cacheaudit.report.losses import loss_table
from cacheaudit.report.result import FindingRow, Predicted
from tests.unit.report import samples

KINDS = st.tuples(
    st.integers(1, 50_000),
    st.sampled_from(["TTL101", "PFX201", "DAT101"]),
    st.sampled_from(["reported", "body_diff", "simulated", "usage"]),
)


def finding(number: int, tokens: int, rule: str, evidence: str) -> FindingRow:
    return msgspec.structs.replace(
        samples.findings()[0],
        id=f"F{number}",
        rule=rule,
        name="unexplained-loss" if rule == "DAT101" else rule.lower(),
        evidence=evidence,
        tokens_lost=tokens,
        lost=samples.loss(tokens),
    )


@given(st.lists(KINDS, max_size=20))
def test_rows_and_columns_add_up_to_all_that_was_lost(kinds: list[tuple[int, str, str]]) -> None:
    findings = [finding(n, *kind) for n, kind in enumerate(kinds)]
    table = loss_table(findings)
    lost = sum(tokens for tokens, _, _ in kinds)
    assert sum(table.total.tokens.values()) == table.total.lost.tokens == lost
    rows = (*table.rows, table.remainder)
    assert sum(row.lost.tokens for row in rows) == lost
    for column in table.columns:
        by_row = sum(row.tokens.get(column, 0) for row in rows)
        assert by_row == table.total.tokens.get(column, 0)
    unexplained = sum(tokens for tokens, rule, _ in kinds if rule == "DAT101")
    assert table.remainder.tokens.get("unexplained", 0) == unexplained
    assert "unexplained" in table.columns
    if kinds:
        assert abs(sum((row.share for row in rows), Decimal(0)) - 1) < Decimal("1e-20")


def test_the_remainder_is_shown_where_nothing_was_lost() -> None:
    table = loss_table([])
    assert table.columns == ("unexplained",)
    assert table.remainder.name == "Unexplained remainder"


def test_days_and_agents_add_up_to_the_totals() -> None:
    ledger = Ledger()
    rows = samples.calls()
    for row in rows:
        ledger.take(row)
    whole = samples.totals(rows)
    for groups in (ledger.by_day("USD"), ledger.by_agent("USD")):
        cost = sum((Decimal(g.totals.cost.computed or 0) for g in groups), Decimal(0))
        assert str(cost) == whole.cost.computed
        for name in ("calls", "cache_read", "output", "total_input"):
            assert sum(getattr(g.totals, name) for g in groups) == getattr(whole, name)
    assert [g.key for g in ledger.by_agent("USD")] == ["main", "agent-a", "agent-b", "agent-c"]
    assert [g.key for g in ledger.by_day("USD")] == ["2026-11-03"]


def test_reported_costs_stand_beside() -> None:
    ledger = Ledger()
    ledger.take(msgspec.structs.replace(samples.calls()[0], reported_cost="0.05"))
    assert ledger.by_day("USD")[0].totals.cost.reported == "0.05"


def test_agreement_counts_each_call_once() -> None:
    agreement = Agreement()
    reads = ((100, 100), (150, 100), (100, 600), (50_000, 0), (0, 5_000), (None, 5))
    for predicted, read in reads:
        row = msgspec.structs.replace(
            samples.calls()[0],
            cache_read=read,
            predicted=None if predicted is None else Predicted(predicted, 0, 0),
        )
        agreement.take(row)
    assert agreement.exact == 1
    assert agreement.fewer == {"under 100": 1, "10,000 and more": 1}
    assert agreement.more == {"100 to 1,000": 1, "1,000 to 10,000": 1}
    assert (agreement.compared, agreement.without) == (5, 1)
