"""The balance adds up to the last digit, whatever the steps are."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.model.money import plain
from cacheaudit.report.hero import context
from cacheaudit.report.page import build
from cacheaudit.report.result import AuditResult, SavingRow, Scenario, Step, WhatIf
from cacheaudit.report.settings import range_words, scenario_lines, score_words, steps_text
from cacheaudit.report.verdict import balance, scenario
from tests.unit.report import samples

AMOUNTS = st.decimals(-50, 50, places=6, allow_nan=False, allow_infinity=False)


def result(paid: Decimal, reported: Decimal, base: Decimal, steps: list[Decimal]) -> AuditResult:
    made = samples.audit()
    cost = msgspec.structs.replace(made.totals.cost, computed=plain(paid))
    made.totals = msgspec.structs.replace(made.totals, cost=cost)
    made.what_if = WhatIf(
        all_fixes=Scenario(name="all-fixes", cost=plain(base - sum(steps, Decimal(0)))),
        reported=Scenario(name="reported", cost=plain(reported)),
        baseline=Scenario(name="baseline", cost=plain(base)),
        waterfall=[
            Step(name=f"s{n}", title=f"Step {n}", saves=SavingRow(None, plain(saves)))
            for n, saves in enumerate(steps)
        ],
    )
    return made


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.lists(AMOUNTS, max_size=6))
def test_the_steps_lead_from_paid_to_best_case(
    paid: Decimal, reported: Decimal, base: Decimal, steps: list[Decimal]
) -> None:
    found = balance(result(paid, reported, base, steps))
    assert found is not None
    assert found.paid - sum((leap.saves for leap in found.leaps), Decimal(0)) == found.best
    assert found.best == paid - (reported - base) - sum(steps, Decimal(0))
    assert found.avoidable == sum(steps, Decimal(0))
    places = [found.paid, *(leap.after for leap in found.leaps)]
    for (before, after), leap in zip(pairwise(places), found.leaps, strict=True):
        assert (leap.before, leap.after) == (before, after)
    assert places[-1] == found.best
    assert found.low <= found.avoidable <= found.high


def test_steps_that_leave_something_out_get_one_more() -> None:
    made = result(Decimal(10), Decimal(10), Decimal(10), [Decimal(2)])
    every = Scenario(name="all-fixes", cost="7")
    made.what_if = msgspec.structs.replace(made.what_if, all_fixes=every)
    found = balance(made)
    assert found is not None
    assert [plain(leap.saves) for leap in found.leaps] == ["2", "1"]
    assert found.leaps[-1].title == "Together beyond these"
    assert found.best == 7


def test_bill_and_simulation_apart_are_a_step_and_a_range() -> None:
    found = balance(result(Decimal(12), Decimal(10), Decimal(9), [Decimal(2)]))
    assert found is not None
    assert found.leaps[0].title == "Billed beyond what the rules predict"
    assert found.leaps[0].saves == 1
    assert (found.low, found.high) == (2, 3)
    assert range_words(found) == "$2.00 to $3.00"
    assert found.best == 9  # 12 - 1 - 2


def test_a_range_that_is_given_counts() -> None:
    made = result(Decimal(10), Decimal(10), Decimal(10), [Decimal(4)])
    made.what_if = msgspec.structs.replace(
        made.what_if, low=SavingRow(None, "3.2"), high=SavingRow(None, "4.6")
    )
    found = balance(made)
    assert found is not None
    assert range_words(found) == "$3.20 to $4.60"


@pytest.mark.parametrize(
    ("worst", "ideal", "best", "score"),
    [
        # (worst - 10) / (worst - cheapest) of 100
        ("20", "5", "8", 67),
        ("20", "5", "4", 63),
        ("20", "10", "10", 100),
        ("10", "5", "8", 0),
        ("9", "5", "8", 0),
        ("5", "5", "8", None),
        (None, "5", "8", None),
    ],
)
def test_score(worst: str | None, ideal: str, best: str, score: int | None) -> None:
    saves = Decimal(10) - Decimal(best)
    made = result(Decimal(10), Decimal(10), Decimal(10), [saves])
    ends = [Scenario(name="ideal", cost=ideal)]
    if worst is not None:
        ends.append(Scenario(name="no-caching", cost=worst))
    made.what_if = msgspec.structs.replace(made.what_if, scenarios=list(ends))
    found = balance(made)
    assert found is not None
    assert found.score == score


def test_without_prices_the_balance_is_in_input_equivalents() -> None:
    made = samples.audit()
    cost = msgspec.structs.replace(made.totals.cost, computed=None, unpriced_calls=14)
    made.totals = msgspec.structs.replace(made.totals, cost=cost)
    found = balance(made)
    assert found is not None
    assert found.unit == "equivalents"
    assert plain(found.paid) == "381701"
    # 381,701 - 69,690 - 37,956.9 + 700
    assert plain(found.best) == "274754.1"
    assert steps_text(found)[0].title == "Input, weighted"
    assert found.score == 48


def test_nothing_simulated_is_no_balance() -> None:
    made = samples.audit()
    made.what_if = WhatIf()
    assert balance(made) is None


def test_scenarios_may_be_plain_mappings() -> None:
    read = scenario({"cost": "1.5", "hit_ratio": 0.5, "calls": 3, "saves": {"cost": "2"} | ANY})
    assert read is not None
    assert (read.name, read.cost, read.calls) == ("all-fixes", "1.5", 3)
    assert read.saves == SavingRow("4", "2")


ANY = {"input_equivalents": "4"}


@pytest.mark.parametrize(("with_fixes", "is_fixes"), [("37", False), ("20", True)])
def test_the_score_names_what_it_is_measured_against(with_fixes: str, is_fixes: bool) -> None:
    made = result(Decimal(50), Decimal(50), Decimal(50), [])
    made.what_if = msgspec.structs.replace(
        made.what_if,
        all_fixes=Scenario(name="all-fixes", cost=with_fixes),
        scenarios=[
            Scenario(name="no-caching", cost="90"),
            Scenario(name="ideal", cost="30"),
        ],
    )
    found = balance(made)
    assert found is not None
    assert found.ideal_is_fixes is is_fixes

    words = score_words(found)

    assert "at best" not in words
    if is_fixes:
        assert found.ideal == found.best == 20
        assert "with all fixes, which do better here than any cache could, $20.00" in words
    else:
        assert (found.ideal, found.best) == (30, 37)
        assert "with an ideal one, where every repeated token is read, $30.00" in words
        assert "best case is another figure: what the fixes leave" in words


@pytest.mark.parametrize(
    ("modes", "title"),
    [({"sizes": 14}, "As it was billed"), ({"bodies": 14}, "As it was, simulated")],
)
def test_only_what_was_played_is_called_simulated(modes: dict[str, int], title: str) -> None:
    made = samples.audit()
    made.simulation = msgspec.structs.replace(made.simulation, modes=modes)
    assert scenario_lines(made, balance(made))[0].title == title


def test_without_both_ends_the_page_does_not_say_that_nothing_was_simulated() -> None:
    made = samples.audit()
    made.what_if = msgspec.structs.replace(made.what_if, scenarios=[])
    shown = context(made, build(made))["no_score"]
    assert shown.startswith("No score: not all of these calls can be simulated without any cache")
