"""Prices used, findings and decisions."""

from __future__ import annotations

from decimal import Decimal

from cacheaudit.model.finding import Finding, Fix, Loss, Place, Rival
from cacheaudit.store import Decision, open_store

FINDING = Finding(
    id="f1",
    rule="TTL101",
    name="ttl-expired",
    title="The cache had expired",
    verdict="proved",
    evidence="usage",
    calls=("c1", "c2"),
    established=("a gap of 400 s",),
    to_check=("the client's log",),
    rivals=(Rival("ROU101", "another machine"),),
    first_change=Place("system", "system[0]", 17),
    tokens_lost=12_345,
    lost=Loss(Decimal("14197.10"), Decimal("0.0425913")),
    fix=Fix("Use one hour", "ttl: 1h", Loss(Decimal("-3.50"), None)),
    session="s",
)


def test_findings_come_back_and_replace_the_old_ones(url: str) -> None:
    other = Finding(
        id="f2", rule="R", name="r", title="t", verdict="unknown", evidence="usage", calls=()
    )
    kept = Finding(
        id="f3",
        rule="R",
        name="r",
        title="t",
        verdict="unknown",
        evidence="usage",
        calls=(),
        session="kept",
    )
    with open_store(url) as store:
        store.replace_findings([FINDING, other, kept], ["s"])
        assert store.findings() == [FINDING, other, kept]
        assert store.findings("s") == [FINDING]
        back = store.findings("s")[0]
        assert back.lost is not None
        assert str(back.lost.input_equivalents) == "14197.10"
        store.replace_findings([other], ["s"])
        assert store.findings() == [kept, other]


def test_findings_of_any_number_of_sessions_are_replaced(url: str) -> None:
    names = [f"s{number}" for number in range(70_000)]  # more than a statement may name
    with open_store(url) as store:
        store.replace_findings([FINDING], names)
        store.replace_findings([], [*names, "s"])
        assert store.findings() == []


def test_decisions_keep_both_prices(url: str) -> None:
    made = [
        Decision(
            session="s",
            at=20.5,
            kind="keep_alive",
            action="ping",
            alternative="expire",
            call="c1",
            action_price=Decimal("0.0010"),
            alternative_price=Decimal("0.012500"),
            details={"pings": 3},
        ),
        Decision(session="t", at=10.0, kind="compaction", action="wait", alternative="compact"),
    ]
    with open_store(url) as store:
        store.record_decisions(made)
        assert store.decisions() == [made[1], made[0]]
        (one,) = store.decisions("s")
    assert (str(one.action_price), str(one.alternative_price)) == ("0.0010", "0.012500")


def test_a_rate_card_that_changed_is_kept_beside_the_older_one(url: str) -> None:
    old, new = {"input": "3", "read": "0.30"}, {"input": "3", "read": "0.03"}
    with open_store(url) as store:
        store.record_prices({"a": old, "b": {}})
        store.record_prices({"a": old})
        store.record_prices({"a": new})
        prices = store.prices()
    assert len(prices) == 3
    assert [card for name, card in prices if name == "a"] in ([old, new], [new, old])
