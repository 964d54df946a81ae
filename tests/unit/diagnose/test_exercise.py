"""The log of fourteen requests from usage alone: what it establishes and what it leaves open."""

from __future__ import annotations

import importlib.util
from decimal import Decimal
from pathlib import Path

import pytest

from cacheaudit.diagnose.runner import diagnose
from cacheaudit.model.finding import Finding

_spec = importlib.util.spec_from_file_location(
    "diagnose_builders", Path(__file__).with_name("builders.py")
)
assert _spec is not None
assert _spec.loader is not None
builders = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(builders)

CAUSES = {
    "row5": "prefix-lost-inside-ttl",
    "row7": "ttl-used-up-by-long-request",
    "row9": "messages-level-invalidation",
    "row10": "older-prefix-read",
    "row11": "lookback-or-message-change",
    "row12": "concurrent-identical-writes",
    "row13": "concurrent-identical-writes",
    "row14": "concurrent-identical-writes",
}
both_layouts = pytest.mark.parametrize("own_lanes", [False, True], ids=["one lane", "own lanes"])


def findings(**options) -> dict[str, Finding]:
    found = diagnose(builders.exercise(**options)).findings
    return {f.name: f for f in found if f.kind == "loss"}


@both_layouts
@pytest.mark.parametrize("ttl", [None, "5m"])
def test_every_row_has_its_cause_and_healthy_rows_have_none(own_lanes, ttl) -> None:
    found = diagnose(builders.exercise(own_lanes=own_lanes, ttl=ttl))
    assert builders.by_call(found.findings) == CAUSES
    assert found.tokens_unexplained == 0


@both_layouts
def test_nothing_is_proved_by_sizes(own_lanes) -> None:
    for finding in findings(own_lanes=own_lanes).values():
        assert finding.verdict in ("consistent", "unknown")
        assert finding.evidence == "usage"
        assert finding.to_check


@both_layouts
def test_lost_tokens_of_each_row(own_lanes) -> None:
    lost = {name: f.tokens_lost for name, f in findings(own_lanes=own_lanes).items()}
    assert lost == {
        "prefix-lost-inside-ttl": 32_800,
        "ttl-used-up-by-long-request": 36_150,
        "messages-level-invalidation": 31_800,
        "older-prefix-read": 1_500,
        "lookback-or-message-change": 34_800,
        "concurrent-identical-writes": 2 * 30_500,
    }


def test_losses_in_input_equivalents_are_the_premium_of_a_write_over_a_read() -> None:
    # Without a price table the documented multiples hold: 1.25 for the write, 0.1 for the read.
    lost = {name: f.lost for name, f in findings().items()}
    assert {name: loss.input_equivalents for name, loss in lost.items()} == {
        "prefix-lost-inside-ttl": Decimal(37720),
        "ttl-used-up-by-long-request": Decimal("41572.5"),
        "messages-level-invalidation": Decimal(36570),
        "older-prefix-read": Decimal(1725),
        # The source gives 40,020 as the saving of this row's fix alone.
        "lookback-or-message-change": Decimal(40020),
        "concurrent-identical-writes": Decimal(70150),
    }
    assert {loss.cost for loss in lost.values()} == {None}


def test_rows_nine_and_ten_together_are_what_not_forcing_saves() -> None:
    lost = {name: f.lost.input_equivalents for name, f in findings().items()}
    pair = lost["messages-level-invalidation"] + lost["older-prefix-read"]
    assert pair == Decimal(38295)


def test_row_five_excludes_expiry_and_names_no_level() -> None:
    finding = findings()["prefix-lost-inside-ttl"]
    said = " ".join(finding.established)
    assert "35 s earlier" in said
    assert "expiry alone does not explain" in said
    assert "grew by 1,850 tokens" in said
    assert {r.rule for r in finding.rivals} >= {
        "tools-changed",
        "system-changed",
        "provider-side-suspected",
    }


def test_row_seven_counts_from_the_start_of_the_long_request() -> None:
    said = " ".join(findings()["ttl-used-up-by-long-request"].established)
    assert "5 min 35 s" in said
    assert "Only 3 min 5 s" in said
    assert "long request" in said


def test_row_seven_says_that_the_lifetime_is_assumed_where_it_is() -> None:
    assert any(
        "record does not say" in line for line in findings()["ttl-used-up-by-long-request"].to_check
    )
    labelled = findings(ttl="5m")["ttl-used-up-by-long-request"]
    assert not any("record does not say" in line for line in labelled.to_check)
    assert labelled.verdict == "consistent"


def test_row_nine_excludes_the_front_and_nothing_else() -> None:
    finding = findings()["messages-level-invalidation"]
    said = " ".join(finding.established)
    assert "7,350 tokens are less than the smallest prompt of the lane (8,500)" in said
    assert "undone again" in said
    assert {r.rule for r in finding.rivals} == {
        "parameter-changed",
        "messages-changed",
        "lookback-or-message-change",
        "system-changed",
        "provider-side-suspected",
    }


def test_row_ten_names_the_older_call_and_leaves_both_explanations_open() -> None:
    finding = findings()["older-prefix-read"]
    assert any("exactly what row8 left" in line for line in finding.established)
    assert {"parameter-changed", "messages-changed"} <= {r.rule for r in finding.rivals}


@both_layouts
def test_row_eleven_is_only_a_thing_to_check(own_lanes) -> None:
    finding = findings(own_lanes=own_lanes)["lookback-or-message-change"]
    assert finding.verdict == "unknown"
    assert any("20 content blocks" in line for line in finding.to_check)
    assert any("The next call read all" in line for line in finding.established)


@both_layouts
def test_rows_twelve_to_fourteen_give_the_most_that_can_be_shared(own_lanes) -> None:
    finding = findings(own_lanes=own_lanes)["concurrent-identical-writes"]
    assert set(finding.calls) == {"row12", "row13", "row14"}
    assert any("At most 30,500" in line for line in finding.established)


def test_without_starts_no_row_is_said_to_have_expired_or_not() -> None:
    found = diagnose(builders.exercise(starts=False))
    names = builders.by_call(found.findings)
    assert names["row5"] == names["row7"] == "unexplained-loss"
    assert not {"ttl-expired", "ttl-used-up-by-long-request"} & set(names.values())
    assert "prefix-lost-inside-ttl" not in names.values()
    unexplained = next(f for f in found.findings if f.name == "unexplained-loss")
    assert "ttl-expired" in {r.rule for r in unexplained.rivals}
    assert unexplained.verdict == "unknown"
