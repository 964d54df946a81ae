from __future__ import annotations

from decimal import Decimal

import msgspec

from cacheaudit.report.result import CostTotal, LossRow
from cacheaudit.report.summary import by_money, causes, is_cut, lost, verdict, write_tiers
from tests.unit.report import samples


def test_losses_add_up_to_the_sum_of_their_parts() -> None:
    total = lost(samples.findings())
    # 36,150 + 32,800 + 31,800 + 34,800 + 60,600 tokens, each 1.15 dearer than a read.
    assert total.tokens == 196_150
    assert total.input_equivalents == Decimal("225572.5")
    assert total.cost == Decimal("225572.5") * samples.PRICE
    assert total.findings == 5
    assert sum(c.lost.input_equivalents for c in causes(samples.findings())) == Decimal("225572.5")


def test_a_note_is_no_loss_and_stands_behind_every_loss() -> None:
    ordered = by_money(samples.findings())
    assert [f.id for f in ordered] == ["F6", "F1", "F4", "F2", "F3", "F5"]


def test_an_unpriced_loss_is_counted_and_not_taken_for_nothing() -> None:
    findings = samples.findings()
    findings[0] = msgspec.structs.replace(findings[0], lost=LossRow("41572.5", None))
    total = lost(findings)
    assert total.unpriced == 1
    assert total.input_equivalents == Decimal("225572.5")
    assert total.cost == Decimal(184_000) * samples.PRICE
    assert lost([findings[0]]).cost is None


def test_the_verdict_names_paid_lost_and_hit_ratio() -> None:
    assert verdict(samples.audit()) == [
        "Paid $1.21, of it $0.68 (56 %) lost to cache misses.",
        "52.6 % of the input was read from the cache.",
        "The largest cause is parallel-writes (FAN101) with 31 % of the loss.",
    ]


def test_the_verdict_without_a_price_speaks_in_tokens() -> None:
    result = samples.audit()
    cost = CostTotal(None, None, "USD", 14, "no price for 'new-model'")
    result.totals = msgspec.structs.replace(result.totals, cost=cost)
    result.findings = [
        msgspec.structs.replace(f, lost=LossRow(f.lost.input_equivalents, None))
        for f in result.findings
        if f.lost
    ]
    assert verdict(result)[0] == (
        "The cost is not known (no price for 'new-model');"
        " misses cost as much as 225,573 ordinary input tokens."
    )


def test_a_loss_without_a_weight_is_told_in_tokens_and_not_as_nothing() -> None:
    result = samples.audit()
    cost = CostTotal(None, None, "USD", 14, "no price for 'new-model'")
    result.totals = msgspec.structs.replace(result.totals, cost=cost, input_equivalents=None)
    result.findings = [msgspec.structs.replace(f, lost=None) for f in result.findings]
    total = lost(result.findings)
    assert (total.tokens, total.weight, total.cost) == (196_150, None, None)
    assert total.unweighted == total.findings == 5
    assert verdict(result) == [
        (
            "The cost is not known (no price for 'new-model'); misses made 196,150 tokens be sent"
            " again."
        ),
        "52.6 % of the input was read from the cache.",
        # 60,600 of 196,150 tokens
        "The largest cause is parallel-writes (FAN101) with 31 % of the loss.",
    ]


def test_a_weight_that_is_known_in_part_is_given() -> None:
    findings = samples.findings()
    findings[0] = msgspec.structs.replace(findings[0], lost=None)
    total = lost(findings)
    assert (total.unweighted, total.weight) == (1, "184000")


def test_a_note_that_names_fifty_calls_may_concern_more() -> None:
    note = next(finding for finding in samples.findings() if finding.kind == "note")
    calls = [f"call-{number}" for number in range(50)]
    assert is_cut(msgspec.structs.replace(note, calls=calls))
    assert not is_cut(msgspec.structs.replace(note, calls=calls[:49]))
    assert not is_cut(msgspec.structs.replace(note, kind="loss", calls=calls))


def test_the_verdict_of_nothing() -> None:
    result = samples.audit()
    result.scope = msgspec.structs.replace(result.scope, calls=0)
    assert verdict(result) == ["No calls were found in what was read."]


def test_write_tiers() -> None:
    totals = samples.audit().totals
    assert write_tiers(totals) == "all for 5m"
    two = msgspec.structs.replace(totals, cache_write={"5m": 1_000, "1h": 20, "other": None})
    assert write_tiers(two) == "5m 1,000 · 1h 20"
    unknown = msgspec.structs.replace(totals, cache_write={"other": 7})
    assert write_tiers(unknown) == "lifetime not known"
