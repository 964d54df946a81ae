"""What the page gathers: opportunities, signs, breaks."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.report.breaks import SHOWN_BREAKS, Breaks, alike
from cacheaudit.report.catalogue import checks, group_of, rule_page
from cacheaudit.report.opportunities import marks, opportunities, places
from cacheaudit.report.page import build
from cacheaudit.report.provider_rules import facts
from cacheaudit.report.result import CallRow, ChangeRow
from cacheaudit.report.signs import Signs
from cacheaudit.report.verdict import balance
from tests.unit.report import samples


def test_opportunities_are_rules_by_money_with_notes_behind() -> None:
    result = samples.audit()
    items = opportunities(result, balance(result))
    assert [item.rule for item in items] == [
        "FAN101",
        "TTL101",
        "LKB101",
        "TOL101",
        "PRM101",
        "CLD101",
    ]
    assert [item.number for item in items] == [1, 2, 3, 4, 5, 6]
    expired = items[1]
    assert expired.group == "Timing"
    assert str(expired.saves) == "0.1138707"
    assert [step.name for step in expired.steps] == ["keep-alive"]
    assert marks(items)["r12"] == (1,)


def test_findings_of_one_rule_are_one_opportunity() -> None:
    result = samples.audit()
    first = result.findings[0]
    other = msgspec.structs.replace(first, id="F9", session="other", calls=["r8", "r7"])
    result.findings = [first, other]
    (item,) = opportunities(result, None)
    assert item.calls == ("r7", "r8")
    assert item.sessions == 2
    assert item.lost.tokens == 2 * 36_150
    assert item.title == first.title


def test_places_know_what_each_call_lost() -> None:
    result = samples.audit()
    item = opportunities(result, None)[1]
    rows = {row.id: (number, row) for number, row in enumerate(samples.calls(), 1)}
    (place,) = places(item, rows)
    assert place.number == 7
    assert place.loss is not None
    assert place.loss.tokens_lost == 36_150


def test_the_page_of_a_rule_comes_apart() -> None:
    page = rule_page("TTL101")
    assert page is not None
    assert page.title == "The cached prefix outlived its lifetime"
    assert page.ignore is not None
    assert "rare" in page.ignore
    assert page.why is not None
    assert "Five minutes" in page.why
    assert rule_page("XXX999") is None
    assert group_of("TTL101") == "Timing"
    assert group_of("XXX999") == "Other"


def test_checks_are_told_from_the_findings_where_the_result_does_not() -> None:
    result = samples.audit()
    assert [check.state for check in checks(result)] == ["found", "clear", "not_applicable"]
    result.checks = []
    states = {check.rule: check.state for check in checks(result)}
    assert states["TTL101"] == "found"
    assert states["PFX101"] == "clear"
    assert len(states) > 20


def row(number: int, **fields: object) -> CallRow:
    return msgspec.structs.replace(samples.call(number, number, 100, 50, 50, "main"), **fields)


def test_signs() -> None:
    signs = Signs()
    tools = ChangeRow("tools", "tools[0]", 0, "added", 10)
    forced = ChangeRow("messages", "tool_choice", 0, "parameter", 10)
    assert signs.of(row(1)) == ()
    assert signs.of(row(2, first_change=tools)) == ("T",)
    assert signs.of(row(3, first_change=forced, model="other")) == ("M", "P")
    assert signs.of(row(4, model="other", purpose="keep_alive")) == ("K",)
    assert signs.of(row(5, model="other", events=["compaction", "retry"])) == ("C", "R")


@given(st.lists(st.integers(0, 1_000), max_size=120))
def test_the_largest_breaks_are_kept_each_with_the_call_before_it(sizes: list[int]) -> None:
    breaks = Breaks("issue-42")
    for number, size in enumerate(sizes, 1):
        change = ChangeRow("messages", f"messages[{size % 3}]", 0, "edited", size)
        breaks.take(number, row(number, first_change=change), ())
    kept = breaks.rows
    assert breaks.total == len(sizes)
    assert len(kept) == min(SHOWN_BREAKS, len(sizes))
    assert sorted(item.change.tokens_after or 0 for item in kept) == sorted(sizes)[-len(kept) :]
    assert [item.number for item in kept] == sorted(item.number for item in kept)
    for item in kept:
        before = [item.number - 1] if item.number > 1 else []
        assert [lane.number for lane in item.lanes] == [*before, item.number]
    groups = alike(kept)
    assert sum(1 + len(group.more) for group in groups) == len(kept)
    assert len(groups) <= 3


def test_the_map_is_of_the_dearest_session() -> None:
    page = build(samples.audit())
    assert page.map is not None
    assert page.map.count("<text") == 3
    assert (page.map_rows, page.map_calls, page.with_bodies) == (14, 14, 14)
    assert build(samples.bare()).map is None


def test_the_rules_of_the_provider_are_listed_with_their_source() -> None:
    result = samples.audit()
    assert [fact.name for fact in facts(result, [])] == ["lookback_positions"]
    result.facts = []
    found = facts(result, [("anthropic", "claude-opus-5-5"), ("nobody", "nothing"), (None, None)])
    values = {fact.name: fact.value for fact in found}
    assert {fact.model for fact in found} == {"claude-opus-5-5"}
    assert values["ttl_seconds"] == "5m 300, 1h 3,600"
    assert values["lookback_positions"] == "20"
    assert values["refresh_on_read"] == "yes"
    assert all(fact.source and fact.checked for fact in found)
