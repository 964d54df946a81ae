"""The law of fixes, for every rule: the fixed bad session is cheaper, or it is said why not."""

from __future__ import annotations

import pytest

from cacheaudit.diagnose.rule import Rule, all_rules
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.jobs.fixes import fix_of
from cacheaudit.jobs.predict import predict, with_savings
from cacheaudit.model.finding import Finding
from cacheaudit.pricing.book import PriceBook
from cacheaudit.simulate.edit import edit_text, parse_edit
from cacheaudit.simulate.switches import Switches
from cacheaudit.simulate.whatif import Lab, Trial

RULES = all_rules()
LOSSES = [rule for rule in RULES if rule.kind == "loss"]
# Losses that no edit can undo, each with the reason in short.
NO_EDIT = {
    "unexplained-loss": "names no cause",
    "provider-side-suspected": "nothing that is sent brings the tokens back",
    "parameter-changed": "what is read behind another stored prefix is not documented",
}
# Losses that buy something: simulated here, and never counted as avoidable.
TRADES = {
    "compacted", "history-rewritten", "history-summarised", "cleared-by-context-editing",
}  # fmt: skip
# Provider rules that have to hold for there to be a loss.
DISPUTED = {
    "beta-headers-changed": {"beta_headers": "tools"},
    "image-presence-changed": {"images": "messages"},
}
# Where a fix of usage alone saves exactly what the finding lost: what was lost is read.
BY_SIZE = {
    "alternating-accounts", "concurrent-identical-writes", "earlier-marker-read",
    "history-changed-midway", "lookback-or-message-change", "messages-level-invalidation",
    "miss-reason-unavailable", "older-prefix-read", "prefix-lost-inside-ttl",
    "provider-switch-suspected", "read-before-visible", "read-floor", "service-changed",
    "turn-start-misses",
}  # fmt: skip
MENDED = [rule for rule in LOSSES if rule.name not in NO_EDIT]
# Notes lose no tokens; these name a setting that would have been cheaper.
SETTINGS = {
    "five-minute-lifetime-would-do", "nothing-cached", "one-hour-lifetime-would-pay",
    "one-hour-writes-not-read-again",
}  # fmt: skip
NOTES = [rule for rule in RULES if rule.name in SETTINGS]


def named(rules: list[Rule]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rule", rules, ids=lambda rule: rule.name)


def own(rule: Rule) -> Finding:
    return next(f for f in diagnose(rule.bad(), PriceBook()).findings if f.rule == rule.id)


def tried(rule: Rule) -> tuple[Trial, Trial]:
    """The bad session as it was, and with the fix."""
    session = rule.bad()
    edit = rule.fix_edit(session, own(rule))
    assert edit is not None
    lab = Lab(session, PriceBook(), Switches.parse(rule.rests_on))
    return lab.baseline, lab.alone(lab.priced(edit))


def test_what_has_no_edit_says_why() -> None:
    assert {rule.name for rule in LOSSES if rule.no_edit is not None} == set(NO_EDIT)
    assert {rule.name for rule in RULES if rule.is_trade} == TRADES
    assert {rule.name: dict(rule.rests_on) for rule in RULES if rule.rests_on} == DISPUTED
    assert all(rule.no_edit is None for rule in RULES if rule.kind == "note")


@named(LOSSES)
def test_an_edit_or_a_reason(rule: Rule) -> None:
    edit = rule.fix_edit(rule.bad(), own(rule))
    assert (edit is None) == (rule.no_edit is not None)


@named(MENDED)
def test_the_fixed_bad_session_simulates_cheaper(rule: Rule) -> None:
    before, after = tried(rule)
    assert after.refused is None
    assert after.saves.input_equivalents is not None
    assert after.saves.input_equivalents > 0
    assert after.saves.cost is not None
    assert after.saves.cost > 0
    assert before.bill is not None
    assert after.bill is not None
    assert before.bill.less(after.bill) == after.saves


@named(MENDED)
def test_the_edit_can_be_asked_for_by_name(rule: Rule) -> None:
    edit = rule.fix_edit(rule.bad(), own(rule))
    assert edit is not None
    assert parse_edit(edit_text(edit)) == edit


@named(NOTES)
def test_a_note_on_a_setting_is_cheaper_with_the_other(rule: Rule) -> None:
    _, after = tried(rule)
    assert after.refused is None
    assert after.saves.input_equivalents is not None
    assert after.saves.input_equivalents > 0


def test_other_notes_have_no_edit() -> None:
    notes = [rule for rule in RULES if rule.kind == "note"]
    mended = {rule.name for rule in notes if type(rule).fix_edit is not Rule.fix_edit}
    assert mended == SETTINGS


@named([rule for rule in LOSSES if rule.name in BY_SIZE])
def test_sizes_and_simulation_agree_on_what_is_saved(rule: Rule) -> None:
    finding = own(rule)
    assert finding.lost is not None
    assert tried(rule)[1].saves.input_equivalents == finding.lost.input_equivalents


@named([rule for rule in LOSSES if rule.name in {*NO_EDIT, *TRADES}])
def test_an_audit_tells_no_saving_of_it(rule: Rule) -> None:
    session = rule.bad()
    diagnosis = diagnose(session, PriceBook())
    found = with_savings(diagnosis.findings, predict(session, diagnosis, PriceBook()))
    mine = next(finding for finding in found if finding.rule == rule.id)
    assert mine.fix is None or mine.fix.saves_alone is None


@named([rule for rule in LOSSES if rule.rests_on])
def test_under_the_default_rules_a_disputed_loss_has_no_fix(rule: Rule) -> None:
    session = rule.bad()
    assert fix_of(Lab(session, PriceBook()), session, own(rule), 1_000) is None
