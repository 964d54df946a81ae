"""Laws of the rules whose examples hold request bodies."""

from __future__ import annotations

from collections import Counter

import pytest

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.pages import page
from cacheaudit.diagnose.rule import Rule, all_rules
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.model.finding import Finding
from cacheaudit.simulate.run import run

RULES = all_rules()
WITH_BODIES = [r for r in RULES if any(c.prompt is not None for c in r.bad().calls)]
LOSSES = [r for r in WITH_BODIES if r.kind == "loss"]
# Causes whose proof is not in the bodies alone.
NEVER_PROVED = {
    "beta-headers-changed",
    "cleared-by-context-editing",
    "image-presence-changed",
}


def named(rules: list[Rule]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rule", rules, ids=lambda rule: rule.name)


def own(rule: Rule) -> Finding:
    return next(f for f in diagnose(rule.bad()).findings if f.rule == rule.id)


def test_the_catalogue_is_large_enough() -> None:
    assert len(LOSSES) >= 40
    assert len(RULES) >= 60


@named(LOSSES)
def test_the_bad_session_has_it_as_its_top_cause(rule: Rule) -> None:
    losses = [f for f in diagnose(rule.bad()).findings if f.kind == "loss"]
    assert losses[0].rule == rule.id
    assert losses[0].tokens_lost == max(f.tokens_lost for f in losses)


@named(LOSSES)
def test_bodies_and_usage_that_agree_are_proof(rule: Rule) -> None:
    finding = own(rule)
    assert finding.evidence == "body_diff"
    assert (finding.verdict == "proved") == (rule.name not in NEVER_PROVED)
    if finding.verdict == "proved":
        assert finding.rivals == ()


@named(LOSSES)
def test_a_token_has_one_cause(rule: Rule) -> None:
    session = rule.bad()
    ctx = Context(session)
    diagnosis = diagnose(session)
    losses = [f for f in diagnosis.findings if f.kind == "loss"]
    assert sum(f.tokens_lost for f in losses) == diagnosis.tokens_lost
    lost = Counter({session.calls[e.index].id: e.lost for e in ctx.events})
    for call, tokens in lost.items():
        found = [f for f in losses if call in f.calls]
        assert sum(f.tokens_lost for f in found) >= tokens
    assert diagnosis.tokens_unexplained == 0


@named(LOSSES)
def test_general_rules_are_no_rivals_of_the_rules_that_stand_for_them(rule: Rule) -> None:
    assert not {rival.rule for rival in own(rule).rivals} & set(rule.supersedes)


@named(WITH_BODIES)
def test_general_rules_exist(rule: Rule) -> None:
    assert set(rule.supersedes) <= {r.name for r in RULES}


@named([r for r in LOSSES if r.id[3] == "2"])
def test_the_page_has_every_section(rule: Rule) -> None:
    text = page(rule)
    for heading in ("Why it costs", "What it rests on", "When to ignore", "References", "Fix"):
        assert f"## {heading}\n" in text


# Thinking and effort: the simulator drops tools and system as well, since it is not known on
# which models it need not; the other ones play what nothing but the record tells (a cache object's
# size is in no request).
NOT_PREDICTED = {
    "beta-headers-changed",
    "cleared-by-context-editing",
    "concurrent-identical-writes",
    "effort-changed",
    "image-presence-changed",
    "lookback-or-message-change",
    "parameter-changed",
    "thinking-toggled",
}


@named([r for r in LOSSES if r.name not in NOT_PREDICTED])
def test_the_simulator_reads_what_the_examples_say(rule: Rule) -> None:
    accuracy = run(rule.bad().calls).accuracy
    assert accuracy.exact_calls == accuracy.calls > 0
