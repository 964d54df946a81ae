"""Laws of the catalogue that need nothing but its examples: every rule, no exceptions unsaid."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cacheaudit.diagnose.rule import Rule, all_rules
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.model.call import Session
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.equivalents import call_input_equivalents

BOOK = PriceBook()
LOSSES = [rule for rule in all_rules() if rule.kind == "loss"]
# A cache object of unknown size.
UNPRICED = {"parameter-changed"}


def named(rules: list[Rule]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rule", rules, ids=lambda rule: rule.name)


def weight(session: Session) -> Decimal | None:
    total = Decimal(0)
    for call in session.calls:
        if call.usage is not None:
            mine = call_input_equivalents(call, BOOK)
            if mine is None:
                return None
            total += mine
    return total


@named(list(all_rules()))
def test_bad_yields_it_and_good_does_not(rule: Rule) -> None:
    assert rule.id in {found.rule for found in diagnose(rule.bad(), BOOK).findings}
    good = diagnose(rule.good(), BOOK).findings
    assert rule.id not in {found.rule for found in good}
    assert [found for found in good if found.kind == "loss"] == []


@named(LOSSES)
def test_the_good_session_is_cheaper(rule: Rule) -> None:
    bad, good = weight(rule.bad()), weight(rule.good())
    assert (bad is None or good is None) == (rule.name in UNPRICED)
    if bad is not None and good is not None:
        assert good < bad


@named(list(all_rules()))
def test_no_token_has_two_causes(rule: Rule) -> None:
    found = diagnose(rule.bad(), BOOK)
    losses = [one for one in found.findings if one.kind == "loss"]
    assert sum(one.tokens_lost for one in losses) == found.tokens_lost
    sizes = {call.id: call.usage for call in rule.bad().calls}
    for one in losses:
        for place in one.places:
            usage = sizes[place.call]
            assert usage is not None
            assert place.tokens <= (usage.total_input or 0)


class _Broken(Rule, register=False):
    """Fails."""

    id = "DAT999"
    name = "broken"
    title = "Broken"

    @classmethod
    def bad(cls) -> Session:
        return LOSSES[0].bad()

    @classmethod
    def good(cls) -> Session:
        return LOSSES[0].good()

    def check(self, ctx: object) -> list[object]:  # type: ignore[override]
        raise ZeroDivisionError("no")


def test_a_crash_becomes_a_finding_and_takes_nothing_from_the_others() -> None:
    session = next(rule for rule in LOSSES if rule.name == "ttl-expired").bad()
    without = diagnose(session, BOOK)
    found = diagnose(session, BOOK, [*all_rules(), _Broken()])
    (error,) = [one for one in found.findings if one.kind == "error"]
    assert error.rule == "DAT999"
    assert error.verdict == "unknown"
    assert [one for one in found.findings if one.kind != "error"] == list(without.findings)
    assert found.tokens_lost == without.tokens_lost
