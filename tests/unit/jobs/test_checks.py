"""How every rule of the catalogue went."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.rule import Rule, all_rules, find_rule
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.jobs.audit import audit
from cacheaudit.jobs.checks import Recorded, checks
from cacheaudit.jobs.inputs import Inputs, silent
from cacheaudit.jobs.needs import THINGS, lacking, needs
from cacheaudit.model.call import Call
from cacheaudit.model.finding import Finding
from cacheaudit.report.result import Check

SESSIONS = Path(__file__).parents[3] / "fixtures" / "sessions"
REMOVE: dict[str, Callable[[Call], Call]] = {
    "usage": lambda call: msgspec.structs.replace(call, usage=None),
    "requests": lambda call: msgspec.structs.replace(call, prompt=None),
    "start_times": lambda call: msgspec.structs.replace(
        call, started_at=None, start_span=None, first_token_at=None, ended_at=None
    ),
    "provider_reasons": lambda call: msgspec.structs.replace(call, diagnostics=None),
    "boundaries": lambda call: msgspec.structs.replace(call, boundaries=()),
}


def audited(name: str) -> dict[str, Check]:
    inputs = Inputs(paths=(SESSIONS / name,), environment={}, home=Path("/nonexistent"))
    return {check.name: check for check in audit(inputs, silent).checks}


def finding(rule: str, kind: str) -> Finding:
    known = find_rule(rule)
    assert known is not None
    return Finding(
        id="x", rule=known.id, name=known.name, title="", verdict="unknown", evidence="usage",
        calls=(), established=("KeyError in x.",), kind=kind,  # type: ignore[arg-type]
    )  # fmt: skip


def test_every_rule_is_listed_once_in_order() -> None:
    listed = [check.rule for check in checks([], [])]
    assert listed == [rule.id for rule in all_rules()]


def test_the_exercise_with_bodies() -> None:
    found = audited("exercise-14.session.jsonl")
    assert found["ttl-used-up-by-long-request"].state == "found"
    assert found["tool-choice-toggled"].state == "found"
    assert found["effort-changed"].state == "clear"
    reasons = found["miss-reason-unavailable"]
    assert reasons.state == "not_applicable"
    assert reasons.why == "the provider gave no reason for a miss"


def test_the_same_from_usage_alone() -> None:
    found = audited("exercise-14.csv")
    toggled = found["tool-choice-toggled"]
    assert (toggled.state, toggled.why) == ("not_applicable", "no requests are recorded")
    assert found["nothing-cached"].state == "clear"
    assert {check.state for check in found.values()} == {"found", "clear", "not_applicable"}
    assert all((check.why is None) == (check.state != "not_applicable") for check in found.values())


def test_notes_count_and_failures_go_first() -> None:
    said = {
        check.name: check
        for check in checks(
            [
                finding("large-addition", "note"),
                finding("ttl-expired", "loss"),
                finding("ttl-expired", "error"),
            ],
            [],
        )
    }
    assert said["large-addition"].state == "found"
    assert (said["ttl-expired"].state, said["ttl-expired"].why) == ("failed", "KeyError in x.")


def speaks(rule: Rule, without: Iterable[str]) -> bool:
    """Whether a rule says anything of its bad example with some things taken out of it."""
    session = type(rule).bad()
    calls = session.calls
    for name in without:
        calls = tuple(map(REMOVE[name], calls))
    bare = msgspec.structs.replace(session, calls=calls)
    return any(draft.claims or rule.kind == "note" for draft in rule.check(Context(bare)))


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_what_a_rule_states_is_what_its_bad_example_cannot_do_without(rule: Rule) -> None:
    assert rule.needs == tuple(name for name in REMOVE if not speaks(rule, [name]))


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_no_two_things_stand_in_for_each_other(rule: Rule) -> None:
    """Whatever is absent, a rule is silent where one of its needs is, and speaks where none is."""
    for number in range(len(REMOVE) + 1):
        for absent in combinations(REMOVE, number):
            assert speaks(rule, absent) is not bool(lacking(rule, absent)), absent


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_what_a_rule_is_said_to_lack_silences_it(rule: Rule) -> None:
    """A rule that lacks something finds nothing in its bad example without it, and the reverse."""
    session = type(rule).bad()
    for name, remove in REMOVE.items():
        bare = msgspec.structs.replace(session, calls=tuple(map(remove, session.calls)))
        speaks = any(
            f.rule == rule.id and f.kind != "error" for f in diagnose(bare, rules=[rule]).findings
        )
        if lacking(rule, [name]):
            assert not speaks, name
        assert (name in needs(rule)) >= bool(lacking(rule, [name])), name


def test_nothing_is_lacking_where_all_is_there() -> None:
    assert not any(lacking(rule, []) for rule in all_rules())


def test_what_is_recorded_is_found_over_all_sessions() -> None:
    rule = find_rule("tool-choice-toggled")
    assert rule is not None
    with_bodies = type(rule).bad().calls
    bare = [REMOVE["requests"](REMOVE["provider_reasons"](call)) for call in with_bodies]
    recorded = Recorded()
    assert recorded.absent == list(THINGS)
    recorded.add(bare)
    assert "requests" in recorded.absent
    assert "usage" not in recorded.absent
    recorded.add(with_bodies)
    assert "requests" not in recorded.absent
    recorded.add([])
    assert "requests" not in recorded.absent
