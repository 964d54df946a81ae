"""The law that every rule obeys: its bad session yields it, its good session loses nothing."""

from __future__ import annotations

import re

import pytest

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.pages import index, page
from cacheaudit.diagnose.rule import Rule, all_rules, find_rule
from cacheaudit.diagnose.runner import diagnose

RULES = all_rules()
NAMES = {rule.name for rule in RULES}
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@each_rule
def test_the_bad_session_yields_the_rule(rule: Rule) -> None:
    found = [f for f in diagnose(rule.bad()).findings if f.rule == rule.id]
    assert found
    for finding in found:
        assert finding.kind == rule.kind
        assert finding.established
        assert finding.calls
        assert (finding.tokens_lost > 0) == (rule.kind == "loss")


@each_rule
def test_the_good_session_loses_nothing(rule: Rule) -> None:
    diagnosis = diagnose(rule.good())
    assert [f.name for f in diagnosis.findings if f.kind != "note"] == []
    assert rule.id not in {f.rule for f in diagnosis.findings}
    assert diagnosis.tokens_lost == 0


@each_rule
def test_rules_look_and_do_not_touch(rule: Rule) -> None:
    session = rule.bad()
    assert list(rule.check(Context(session))) == list(rule.check(Context(session)))
    assert session == rule.bad()


@each_rule
def test_rivals_are_rules(rule: Rule) -> None:
    for finding in diagnose(rule.bad()).findings:
        assert {rival.rule for rival in finding.rivals} <= NAMES
        assert finding.name not in {rival.rule for rival in finding.rivals}


@each_rule
def test_usage_alone_proves_a_cause_only_where_the_record_names_it(rule: Rule) -> None:
    for finding in diagnose(rule.bad()).findings:
        if finding.kind == "loss" and finding.verdict == "proved" and finding.evidence == "usage":
            assert finding.name == "model-switched"


@each_rule
def test_the_page_says_what_it_has_to(rule: Rule) -> None:
    text = page(rule)
    assert text.startswith(f"# {rule.id} {rule.name}\n")
    assert "## What it rests on" in text
    assert re.search(r"## When to (ignore|look closer)", text)
    assert rule.title in text


def test_ids_and_names_are_unique() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES) == len(NAMES)


def test_every_reason_of_the_provider_means_one_rule() -> None:
    reasons = [reason for rule in RULES for reason in rule.provider_reasons]
    assert len(reasons) == len(set(reasons))
    assert {"model_changed", "system_changed", "tools_changed", "messages_changed"} <= set(reasons)


def test_rules_are_found_by_id_and_name() -> None:
    by_id, by_name = find_rule(" ttl101 "), find_rule("TTL-expired")
    assert by_id is not None
    assert by_id is by_name
    assert find_rule("TTL999") is None


def test_docs_hold_the_pages(root) -> None:
    folder = root / "docs" / "rules"
    pages = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    assert pages.pop("README.md") == index()
    assert pages == {f"{rule.name}.md": page(rule) for rule in RULES}


def test_a_rule_with_a_used_id_or_a_bad_name_is_refused() -> None:
    before = dict(Rule.registry)
    with pytest.raises(TypeError, match="repeats"):
        type("Twice", (Rule,), {"id": "TTL101", "name": "other", "title": "t", "__doc__": "d"})
    with pytest.raises(TypeError, match="kebab"):
        type("Shouts", (Rule,), {"id": "TTL998", "name": "TooLoud", "title": "t", "__doc__": "d"})
    with pytest.raises(TypeError, match="family"):
        type("Lost", (Rule,), {"id": "ZZZ101", "name": "lost", "title": "t", "__doc__": "d"})
    with pytest.raises(TypeError, match="docstring"):
        type("Mute", (Rule,), {"id": "TTL997", "name": "mute", "title": "t"})
    assert Rule.registry == before
